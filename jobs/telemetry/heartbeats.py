"""Which processes of the console are at work, in Redis: what each service says of itself, and how often it started.

Nobody decides anything by it; it is for monitoring. A Redis that is away is passed over, and one that was emptied is
filled again within seconds.
"""

import json
import logging
import os
import socket
import threading
import time
from dataclasses import dataclass

import redis

from jobs.telemetry.streams import client

log = logging.getLogger(__name__)

PROCESSES = "pitwall:processes"
STARTS = "pitwall:process-starts"
SERVICES = ("web", "ingest", "worker", "reconcile")
BEAT_SECONDS = 5.0
ALIVE_SECONDS = 20.0  # a process that has been silent for longer is not at work
FORGET_SECONDS = 3600.0  # of one that has ended


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceState:
    """A service: how many of its processes are at work, when one was last seen (Unix seconds), how often one started.

    `seen_at` and `num_starts` are 0 where Redis knows of none.
    """

    service: str
    num_alive: int
    seen_at: float
    num_starts: int


def process_name() -> str:
    """Return what tells this process from all others: its host and number."""
    return f"{socket.gethostname()}:{os.getpid()}"


class Heartbeat:
    """What one process of `service` says of itself; `beat` each time that it has done something."""

    def __init__(self, service: str, redis_client: redis.Redis | None = None) -> None:
        self._service = service
        self._redis = redis_client or client()
        self._field = f"{service}@{process_name()}"
        self._beaten_at = float("-inf")
        self._has_started = False

    def beat(self) -> None:
        """Say that the process is at work, at most once in five seconds. Never raises for a Redis that is away."""
        if time.monotonic() - self._beaten_at < BEAT_SECONDS:
            return
        self._beaten_at = time.monotonic()
        now = time.time()
        try:
            if not self._has_started:
                _forget_old(self._redis, now=now)
                self._redis.hincrby(STARTS, self._service, 1)
                self._has_started = True
            self._redis.hset(PROCESSES, self._field, str(now))
        except redis.RedisError as error:
            log.debug("No heartbeat: %s", error)

    def keep_beating(self) -> None:
        """Beat from a thread of its own, for as long as the process lives."""
        threading.Thread(target=self._beat_on, name="heartbeat", daemon=True).start()

    def _beat_on(self) -> None:
        while True:
            self.beat()
            time.sleep(BEAT_SECONDS)


def service_states(redis_client: redis.Redis, *, now: float) -> tuple[ServiceState, ...]:
    """Return every service of the console, those of which nothing is known too. Raises: redis.RedisError."""
    seen: dict[str, list[float]] = {service: [] for service in SERVICES}
    for name, at in _entries(redis_client):
        if name.partition("@")[0] in seen:
            seen[name.partition("@")[0]].append(at)
    starts: dict[bytes, bytes] = redis_client.hgetall(STARTS)  # type: ignore[assignment]  # redis types it as awaitable too
    return tuple(
        ServiceState(
            service=service,
            num_alive=sum(now - at < ALIVE_SECONDS for at in times),
            seen_at=max(times, default=0.0),
            num_starts=int(starts.get(service.encode(), 0)),
        )
        for service, times in seen.items()
    )


def _entries(redis_client: redis.Redis) -> list[tuple[str, float]]:
    rows: dict[bytes, bytes] = redis_client.hgetall(PROCESSES)  # type: ignore[assignment]
    return [(name.decode(), json.loads(at)) for name, at in rows.items()]


def _forget_old(redis_client: redis.Redis, *, now: float) -> None:
    old = [name for name, at in _entries(redis_client) if now - at > FORGET_SECONDS]
    if old:
        redis_client.hdel(PROCESSES, *old)
