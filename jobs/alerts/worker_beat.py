"""Whether a Celery worker takes tasks: asked by a task that only says so, twice a minute."""

import time

import redis
from celery import shared_task
from kombu.exceptions import OperationalError

from jobs.telemetry.streams import client

KEY = "pitwall:worker-beat"
EVERY_SECONDS = 30.0


@shared_task(name="jobs.alerts.beat")
def beat_task() -> None:
    """Say that a worker took this."""
    with client() as connection:
        connection.set(KEY, str(time.time()), ex=3600)


def ask() -> None:
    """Send the task; one that nobody took by the next is thrown away."""
    try:
        beat_task.apply_async(expires=EVERY_SECONDS, retry=False)
    except (OperationalError, OSError):
        return  # then nobody says anything, which is what is asked


def seen_at(connection: redis.Redis) -> float:
    """Return when a worker last took one (Unix seconds), 0 if not in the last hour. Raises: redis.RedisError."""
    raw = connection.get(KEY)
    return float(raw) if isinstance(raw, bytes) else 0.0
