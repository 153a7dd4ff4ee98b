#!/usr/bin/env python
"""Django entry point; `manage.py up` runs the embedded console."""

import atexit
import gc
import os
import sys

# Of the thousands of modules of a console none is garbage: looking for some after each 700 objects slows its start.
GARBAGE_THRESHOLD = (20_000, 20, 50)


def main() -> None:
    gc.set_threshold(*GARBAGE_THRESHOLD)
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")
    from django.core.management import execute_from_command_line

    from jobs.accounts.origin import SERVICES, command_origin, origin

    atexit.register(gc.freeze)  # Python looks for garbage once more when it ends, in all that ends with it
    if len(sys.argv) > 1 and sys.argv[1] not in SERVICES:
        origin.set(command_origin())  # the audit names who typed it
    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
