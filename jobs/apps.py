"""The Django app that holds every row."""

from typing import Any

from django.apps import AppConfig
from django.db import connections
from django.db.models.signals import post_migrate


class JobsConfig(AppConfig):
    """Runs and their life."""

    name = "jobs"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """After each `migrate`, see that lists of runs have all they are searched by."""
        post_migrate.connect(_index_runs, sender=self)


def _index_runs(*, using: str, **_about: Any) -> None:
    from jobs.runs.find.index import catch_up_all  # models are there only now
    from jobs.runs.find.triggers import keep

    connection = connections[using]
    if "jobs_runfact" in connection.introspection.table_names() and keep(connection):
        catch_up_all()
