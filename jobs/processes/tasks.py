"""Celery's entry points: load, one call. They may run twice or never; then jobs.processes.reconcile does their work.

Messages carry a task's name, so that it stays when the code moves. One more task stands where it is sent, below the
runs: the import of a trace (jobs.traces.imports).
"""

import logging
from typing import Any

from celery import Task, shared_task
from django.contrib.auth import get_user_model
from django.db import transaction
from django.utils import timezone
from kombu.exceptions import OperationalError

from jobs.cluster import ray_api as cluster
from jobs.planning import joining
from jobs.runs import launch, lifecycle
from jobs.runs.merges import MERGES
from jobs.runs.prompt_model import ANSWERS

log = logging.getLogger(__name__)


@shared_task(name="jobs.tasks.submit")
def submit(*, run_id: str, **_: Any) -> None:
    """Hand a queued run to Ray if its resources are free."""
    launch.submit(run_id=run_id, now=timezone.now())


@shared_task(name="jobs.tasks.stop")
def stop(*, run_id: str, user_id: int | None = None, **_: Any) -> None:
    """Ask a run to stop."""
    user = get_user_model().objects.filter(pk=user_id or 0).first()
    lifecycle.request_stop(run_id=run_id, user=user, now=timezone.now())


@shared_task(name="jobs.tasks.try_model")
def try_model(*, answer_id: int, **_: Any) -> None:
    """Start the job that answers a prompt."""
    ANSWERS.submit(answer_id, now=timezone.now())


@shared_task(name="jobs.tasks.make_model")
def make_model(*, merge_id: int, **_: Any) -> None:
    """Start the job that makes a model of a checkpoint."""
    MERGES.submit(merge_id, now=timezone.now())


@shared_task(name="jobs.tasks.join_calibration")
def join_calibration(*, run_id: str, **_: Any) -> None:
    """Let a finished run join the calibration of what it was on."""
    joining.join_run(run_id, state=cluster.read_state(), now=timezone.now())


def enqueue(task: Task, **arguments: Any) -> None:
    """Send a task once the open transaction has committed; a broker that is away only costs the reconciler's second."""

    def send() -> None:
        try:
            task.apply_async(kwargs=arguments, retry=False)
        except (OperationalError, OSError) as error:
            log.warning("the broker is away, %s is left to the reconciler: %s", task.name, error)

    transaction.on_commit(send)
