#!/usr/bin/env python
"""Django entry point; `manage.py up` runs the embedded console."""

import os
import sys


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")
    from django.core.management import execute_from_command_line

    from jobs.accounts.origin import SERVICES, command_origin, origin

    if len(sys.argv) > 1 and sys.argv[1] not in SERVICES:
        origin.set(command_origin())  # the audit names who typed it
    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
