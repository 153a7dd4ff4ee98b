"""`manage.py worker`: the Celery worker, with threads, because its tasks are short HTTP calls."""

import warnings
from typing import Any

from celery.exceptions import SecurityWarning
from django.core.management.base import BaseCommand

from console.celery import app
from console.hardening import harden
from jobs.telemetry.heartbeats import Heartbeat


class Command(BaseCommand):
    """Run the worker until SIGTERM or Ctrl-C."""

    help = "Run the worker that submits, stops and answers"
    requires_system_checks = []

    def handle(self, *_args: Any, **_options: Any) -> None:
        """Become the worker."""
        harden()
        # Celery warns root of pickled messages; these are JSON only.
        warnings.filterwarnings("ignore", message="You're running the worker with superuser", category=SecurityWarning)
        Heartbeat("worker").keep_beating()
        app.worker_main(
            argv=[
                "--quiet",  # no banner
                "worker",
                "--pool=threads",
                "--concurrency=4",
                "--without-gossip",
                "--without-mingle",
                "--without-heartbeat",
                "--loglevel=WARNING",
            ]
        )
