"""The Redis side of the live path: names of keys, and clients made for it.

Redis holds only what is on its way: batches that are not in the database yet (`INGEST`), and what browsers are to see
at once (`LIVE`). Losing all of it loses no data: the runner still has every batch that is not durable.
"""

import json
import time
from dataclasses import dataclass

import redis
import redis.asyncio
from django.conf import settings
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.retry import Retry

INGEST = "pitwall:ingest"
LIVE = "pitwall:live"
BEAT = "pitwall:ingest-beat"
INGEST_TOTALS = "pitwall:ingest-totals"  # what ingest has stored so far: batches, frames, bytes

LIVE_ENTRIES = 2000  # a web process that falls further behind reads the database instead
MAX_QUEUED_BATCHES = 20_000  # above this the ingest endpoint answers 503, and runners keep their batches
SOCKET_SECONDS = 5.0  # redis-py answers a longer silence with TimeoutError, so every BLOCK is shorter


def expect_key(run_id: str, attempt: int) -> str:
    """Return the key that holds the batch number that is expected next."""
    return f"pitwall:expect:{run_id}:{attempt}"


def client(url: str | None = None) -> redis.Redis:
    """Return a blocking client. One try a call: whoever calls knows better when to come back."""
    return redis.Redis.from_url(
        url or settings.REDIS_URL,
        socket_timeout=SOCKET_SECONDS,
        socket_connect_timeout=2,
        retry=Retry(NoBackoff(), 1),  # once, for a connection that went stale in the pool
    )


def async_client(url: str | None = None) -> redis.asyncio.Redis:
    """Return a client for the running event loop; close it there with `aclose`."""
    return redis.asyncio.Redis.from_url(
        url or settings.REDIS_URL,
        socket_timeout=SOCKET_SECONDS,
        socket_connect_timeout=2,
        max_connections=4000,
        retry=AsyncRetry(NoBackoff(), 1),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestStatus:
    """How the ingest process is: when it was last seen (Unix seconds), what troubles it, how many batches wait."""

    seen_at: float
    trouble: str
    num_waiting: int

    def is_alive(self, *, now: float) -> bool:
        """Return whether it was seen within the last 10 seconds."""
        return now - self.seen_at < 10


def beat(redis_client: redis.Redis, *, trouble: str) -> None:
    """Say that the ingest process lives, and what keeps it from storing ("" for nothing)."""
    redis_client.set(BEAT, json.dumps({"seen_at": time.time(), "trouble": trouble}), ex=3600)


def ingest_status(redis_client: redis.Redis) -> IngestStatus:
    """Return what the ingest process last said of itself. Raises: redis.RedisError if Redis is away."""
    raw, waiting = redis_client.get(BEAT), redis_client.xlen(INGEST)
    status = json.loads(raw) if isinstance(raw, bytes) else {"seen_at": 0.0, "trouble": ""}
    return IngestStatus(seen_at=status["seen_at"], trouble=status["trouble"], num_waiting=int(waiting))  # type: ignore[arg-type]  # redis types its answers as awaitable too
