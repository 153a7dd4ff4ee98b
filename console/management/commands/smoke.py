"""`manage.py smoke`: the demo without a person; exit code 0 only if it learned."""

import sys
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from console.embedded.smoke import (
    SmokeFailed,
    evaluate,
    in_fresh_directory,
    leave_when_told,
    read_columns,
    run_demo,
    summary,
    table,
)


class Command(BaseCommand):
    """Starts a console in a fresh directory, runs the demo to its end and evaluates it."""

    help = (
        "Run the demo in a fresh data directory and exit with 0 only if reward and held-out accuracy are high enough."
    )
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        """Take changed knobs and the time limit."""
        parser.add_argument(
            "--set", action="append", default=[], metavar="KNOB=VALUE", help="change a knob of the demo"
        )
        parser.add_argument("--seconds", type=float, default=600.0, help="give up after so long (default: %(default)s)")
        parser.add_argument(
            "--here", action="store_true", help="in PITWALL_DATA_DIR, which must be fresh, not in a new one"
        )

    def handle(self, *_: Any, **options: Any) -> None:
        """Run, print the table and the verdict, exit."""
        changes: list[str] = options["set"]
        leave_when_told()
        if not options["here"]:
            arguments = [f"--set={change}" for change in changes] + [f"--seconds={options['seconds']}"]
            sys.exit(in_fresh_directory(arguments))
        try:
            run_id = run_demo(
                Path(settings.DATA_DIR), changes=changes, seconds=options["seconds"], say=self.stdout.write
            )
        except SmokeFailed as error:
            raise CommandError(str(error)) from error
        columns = read_columns(run_id)
        verdict = evaluate(columns)
        self.stdout.write(table(columns))
        self.stdout.write(summary(run_id, columns))
        self.stdout.write(f"{'PASS' if verdict.is_good else 'FAIL'}: {verdict}")
        sys.exit(0 if verdict.is_good else 1)
