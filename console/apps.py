"""The Django app of pages, forms, API and websocket; it has no rows."""

from importlib import import_module

from django.apps import AppConfig


class ConsoleConfig(AppConfig):
    """What people see."""

    name = "console"

    def ready(self) -> None:
        """Make our Celery app the one that tasks are sent with."""
        import_module("console.celery")
