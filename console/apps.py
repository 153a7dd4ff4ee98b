"""The Django app of pages, forms, API and websocket; it has no rows."""

from importlib import import_module

from django.apps import AppConfig

from console.translations import compile_catalogs


class ConsoleConfig(AppConfig):
    """What people see."""

    name = "console"

    def ready(self) -> None:
        """Compile the translations if need be; make our Celery app the one that tasks are sent with; have
        sign-ins kept in the audit.
        """
        compile_catalogs()
        import_module("console.celery")
        import_module("console.sign_in.trail")
