"""`manage.py ingest`: bring what runners report into the database and to open pages."""

import signal
from typing import Any

from django.core.management.base import BaseCommand

from console.hardening import harden
from jobs.ingest.process import Ingest


class Command(BaseCommand):
    """Run the ingest loop until SIGTERM or Ctrl-C."""

    help = "Store what runners report and publish it to open pages. One process is enough; two do no harm."
    requires_system_checks = []

    def handle(self, *_args: Any, **_options: Any) -> None:
        """Loop; what is stored is durable, so a kill at any moment loses nothing."""
        harden()
        ingest = Ingest()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: ingest.stop())
        ingest.run_forever()
