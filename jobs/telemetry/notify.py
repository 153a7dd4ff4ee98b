"""Tell open pages that a run's header changed: one entry on the live stream; web processes read the header themselves.

Best effort: a page that misses it learns the same from its next frame or heartbeat.
"""

import logging
from functools import cache

import redis

from jobs.telemetry.streams import LIVE, LIVE_ENTRIES, client

log = logging.getLogger(__name__)


def run_changed(run_id: str) -> None:
    """Publish that the run changed. Call it after the commit; it never raises for a Redis that is away."""
    try:
        _client().xadd(LIVE, {"run": run_id}, maxlen=LIVE_ENTRIES, approximate=True)
    except redis.RedisError as error:
        log.warning("Pages were not told that run %s changed: %s", run_id, error)


def trace_changed(trace_id: str) -> None:
    """Publish that a trace changed, as `run_changed` does for a run: their ids differ, so they share the stream."""
    run_changed(trace_id)


@cache
def _client() -> redis.Redis:
    return client()
