"""`manage.py worker`: the Celery worker, with threads, because its tasks are short HTTP calls."""

from typing import Any

from django.core.management.base import BaseCommand

from console.celery import app


class Command(BaseCommand):
    """Run the worker until SIGTERM or Ctrl-C."""

    help = "Run the worker that submits, stops and answers"

    def handle(self, *_args: Any, **_options: Any) -> None:
        """Become the worker."""
        app.worker_main(
            argv=[
                "worker",
                "--pool=threads",
                "--concurrency=4",
                "--without-gossip",
                "--without-mingle",
                "--without-heartbeat",
                "--loglevel=INFO",
            ]
        )
