"""Events and batches as runners ship them, and a database that other processes can open."""

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from django.db import connection

from jobs.ingest.store import Delivery
from profiling import events
from profiling.events import Event

T0 = 1_790_000_000_000_000_000  # Unix ns


def metric(step: int, attempt: int = 1, role: str = "driver", rank: int = 0, **values: float) -> Event:
    """Return one step's metrics; the time follows from the step."""
    return events.metric(values, attempt=attempt, step=step, role=role, rank=rank, t=T0 + step * 1_000_000_000)


def delivery(run_id: str, batch: int, batch_events: Sequence[Event], *, attempt: int = 1) -> Delivery:
    """Return a batch as it would lie on the stream."""
    body = json.dumps(list(batch_events)).encode()
    return Delivery(id=f"{batch}-0".encode(), run_id=run_id, attempt=attempt, batch=batch, events=body)


def service_environment(redis_url: str) -> dict[str, str]:
    """Return the environment with which a process of the console uses this test's database and Redis."""
    config: dict[str, Any] = connection.settings_dict
    if connection.vendor == "sqlite":
        database = f"sqlite:///{config['NAME']}"
    else:
        database = f"postgres://{config['USER']}@/{config['HOST']}/{config['NAME']}"  # HOST is the socket's folder
    from django.conf import settings

    return {
        **os.environ,
        "DATABASE_URL": database,
        "REDIS_URL": redis_url,
        "PITWALL_DATA_DIR": str(settings.DATA_DIR),
        "DJANGO_SETTINGS_MODULE": "console.settings",
    }


def manage(*arguments: str) -> list[str]:
    """Return the command line of a management command."""
    return [sys.executable, str(Path(__file__).resolve().parents[1] / "manage.py"), *arguments]
