"""The Django app that holds every row."""

from django.apps import AppConfig


class JobsConfig(AppConfig):
    """Runs and their life."""

    name = "jobs"
    default_auto_field = "django.db.models.BigAutoField"
