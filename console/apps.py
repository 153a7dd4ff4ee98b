"""The Django app of pages, forms, API and websocket; it has no rows."""

from django.apps import AppConfig


class ConsoleConfig(AppConfig):
    """What people see."""

    name = "console"
