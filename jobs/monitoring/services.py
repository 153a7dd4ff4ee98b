"""What the console leans on, in numbers: its processes, Redis with the two queues in it, the database, the disk."""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis
from django.conf import settings
from django.db import connection

from jobs.telemetry.heartbeats import ServiceState, service_states
from jobs.telemetry.streams import INGEST, INGEST_TOTALS, ingest_status

TASKS = "celery"  # the list that Celery's messages wait in; the oldest is the last
_TASKS_UNDER_WAY = "unacked"  # taken by a worker that has not finished them


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisFacts:
    """What Redis holds. Ages in seconds, 0 where nothing waits; `memory_limit_bytes` is 0 for none.

    `batches`, `frames` and `num_bytes` count what ingest has stored since Redis was last emptied.
    """

    memory_bytes: int
    memory_limit_bytes: int
    batches_waiting: int
    oldest_batch_seconds: float
    batches: int
    frames: int
    num_bytes: int
    is_ingest_in_trouble: bool
    tasks_waiting: int
    oldest_task_seconds: float
    tasks_under_way: int
    services: tuple[ServiceState, ...]


def redis_facts(redis_client: redis.Redis, *, now: float) -> RedisFacts:
    """Return what Redis holds at `now` (Unix seconds). Raises: redis.RedisError."""
    pipe: Any = redis_client.pipeline(transaction=False)
    pipe.info("memory").xrange(INGEST, count=1).hgetall(INGEST_TOTALS)
    pipe.llen(TASKS).lindex(TASKS, -1).hlen(_TASKS_UNDER_WAY)
    memory, oldest_batch, totals, tasks_waiting, oldest_task, under_way = pipe.execute()
    status = ingest_status(redis_client)
    return RedisFacts(
        memory_bytes=memory["used_memory"],
        memory_limit_bytes=memory.get("maxmemory", 0),
        batches_waiting=status.num_waiting,
        oldest_batch_seconds=_age_of_batch(oldest_batch, now=now),
        batches=int(totals.get(b"batches", 0)),
        frames=int(totals.get(b"frames", 0)),
        num_bytes=int(totals.get(b"bytes", 0)),
        is_ingest_in_trouble=bool(status.trouble),
        tasks_waiting=tasks_waiting,
        oldest_task_seconds=_age_of_task(oldest_task, now=now),
        tasks_under_way=under_way,
        services=service_states(redis_client, now=now),
    )


def database_bytes() -> int:
    """Return what the database takes on its disk. Raises: django.db.DatabaseError."""
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_database_size(current_database())")
            return int(cursor.fetchone()[0])
    path = Path(connection.settings_dict["NAME"])
    return sum(file.stat().st_size for file in (path, path.with_name(f"{path.name}-wal")) if file.exists())


def disk_facts() -> tuple[int, int]:
    """Return size and free bytes of the disk that the data directory is on."""
    usage = shutil.disk_usage(settings.DATA_DIR)
    return usage.total, usage.free


def _age_of_batch(entries: list[tuple[bytes, Any]], *, now: float) -> float:
    """An entry of a stream is named by the millisecond in which it came."""
    return max(0.0, now - int(entries[0][0].partition(b"-")[0]) / 1000) if entries else 0.0


def _age_of_task(message: bytes | None, *, now: float) -> float:
    """console.celery writes into each message when it was sent."""
    sent_at = json.loads(message)["headers"].get("sent_at") if message else None
    return max(0.0, now - sent_at) if isinstance(sent_at, int | float) else 0.0
