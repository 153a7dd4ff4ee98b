"""The Celery app: short, repeatable steps only; jobs.processes.reconcile heals whatever it loses."""

import os
import time
from typing import Any

from celery import Celery
from celery.signals import before_task_publish

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")


def _broker(redis_url: str) -> str:
    """Return Celery's form of a redis-py URL; it names unix sockets differently."""
    if redis_url.startswith("unix://"):
        path, _, query = redis_url.removeprefix("unix://").partition("?")
        database = dict(part.split("=", 1) for part in query.split("&") if "=" in part).get("db", "0")
        return f"redis+socket://{path}?virtual_host={database}"
    return redis_url


def make_app() -> Celery:
    """Return the configured app."""
    from django.conf import settings

    app = Celery("pitwall", broker=_broker(settings.REDIS_URL))
    app.conf.update(
        task_ignore_result=True,
        accept_content=["json"],
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        worker_prefetch_multiplier=1,
        task_time_limit=300,
        # Who clicks while the broker is away waits for two quick tries, not six seconds; the reconciler does the rest.
        broker_transport_options={"visibility_timeout": 900, "max_retries": 1, "interval_start": 0, "interval_step": 0},
        broker_connection_retry_on_startup=True,
        worker_hijack_root_logger=False,
        task_always_eager=getattr(settings, "CELERY_TASK_ALWAYS_EAGER", False),
    )
    app.autodiscover_tasks(["jobs.processes"])
    app.autodiscover_tasks(["jobs.traces"], related_name="imports")
    app.autodiscover_tasks(["jobs.alerts"], related_name="outbox")
    app.autodiscover_tasks(["jobs.alerts"], related_name="worker_beat")
    return app


@before_task_publish.connect
def _say_when(headers: dict[str, Any] | None = None, **_: Any) -> None:
    """Write into each message when it was sent, for `jobs.monitoring` to tell how long the oldest one waits."""
    if headers is not None:
        headers["sent_at"] = time.time()


app = make_app()
