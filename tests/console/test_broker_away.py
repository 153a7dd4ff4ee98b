"""A click while Redis is away: it counts, and it does not wait for Redis."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from celery import Celery

from console.celery import app, make_app
from jobs.processes import tasks


@pytest.fixture
def queue_without_broker(settings: Any) -> Iterator[Celery]:
    settings.REDIS_URL = "unix:///nowhere/redis.sock?db=0"
    settings.CELERY_TASK_ALWAYS_EAGER = False
    yield make_app()
    app.set_current()  # a new app makes itself the current one


def test_a_task_that_cannot_be_sent_costs_the_click_nothing(
    queue_without_broker: Celery, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tasks.transaction, "on_commit", lambda send: send())
    task = queue_without_broker.tasks[tasks.submit.name]
    tasks.enqueue(task, run_id="r-0")  # imports the transport
    began = time.monotonic()

    tasks.enqueue(task, run_id="r-1")

    assert time.monotonic() - began < 5  # Celery's own retries take six
    assert "left to the reconciler" in caplog.text
