"""The ingest process: ingest stream -> database -> live stream, and now and then frames -> chunks.

It always reads the stream from its beginning, because what is stored is removed: nothing to remember, so it may be
killed at any moment. It survives a Redis or a database that goes away; both are asked again, with back-off, until they
are back.
"""

import logging
import threading
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import groupby
from typing import Any

import redis
from django.db import InterfaceError, OperationalError, close_old_connections

from jobs.ingest.compaction import Compactor
from jobs.ingest.store import AttemptCache, Delivery, StoreResult, skip, store
from jobs.telemetry.heartbeats import Heartbeat
from jobs.telemetry.streams import INGEST, INGEST_TOTALS, LIVE, LIVE_ENTRIES, beat, client, expect_key

log = logging.getLogger(__name__)

WINDOW_SECONDS = 0.1
READ_BATCHES = 64  # of at most 2 MiB each
BLOCK_MS = 500
BEAT_SECONDS = 1.0
LONGEST_WAIT_SECONDS = 5.0
MAX_INLINE_BYTES = 64 * 1024  # a larger frame is only announced: the live stream stays small, pages read the database
MAX_MEMORIES = 500

_AWAY = (OperationalError, InterfaceError)


class Ingest:
    """One run of the loop. `stop` ends it after the window at hand."""

    def __init__(self, redis_client: redis.Redis | None = None) -> None:
        self._redis = redis_client or client()
        self._stop = threading.Event()
        self._memories: dict[tuple[str, int], AttemptCache] = {}
        self._compactor = Compactor()
        self._trouble = ""
        self._beaten_at = 0.0
        self._heartbeat = Heartbeat("ingest", self._redis)

    def stop(self) -> None:
        """End `run_forever` soon; safe in a signal handler."""
        self._stop.set()

    def run_forever(self) -> None:
        """Serve until `stop`, whatever goes away meanwhile."""
        wait = 0.1
        while not self._stop.is_set():
            began = time.monotonic()
            try:
                num_stored = self.work()
            except redis.RedisError as error:
                self._tell(f"Redis is away: {error}")
            except _AWAY as error:
                self._tell(f"The database does not take anything: {error}")
                close_old_connections()
                self._beat()
            else:
                if self._trouble:
                    log.info("Ingest goes on.")
                self._trouble, wait = "", 0.1
                if num_stored < READ_BATCHES:  # else more waits already
                    self._stop.wait(max(0.0, WINDOW_SECONDS - (time.monotonic() - began)))
                continue
            self._stop.wait(wait)
            wait = min(wait * 2, LONGEST_WAIT_SECONDS)

    def work(self) -> int:
        """Store what waits on the stream, or comes within half a second; return how many batches there were.

        Raises: redis.RedisError, django.db.OperationalError or InterfaceError; everything is then still on the stream.
        """
        self._beat()
        deliveries = self._read()
        trouble: Exception | None = None
        for (run_id, attempt), group in groupby(sorted(deliveries, key=_attempt_of), key=_attempt_of):
            of_attempt = list(group)
            try:
                stored = self._store(run_id, attempt, of_attempt)
            except _AWAY as error:
                self._memories.pop((run_id, attempt), None)
                trouble = error
                close_old_connections()
                continue  # others may still get through
            self._hand_on(run_id, attempt, of_attempt, stored)
        if trouble is not None:
            raise trouble
        self._compactor.work()
        self._heartbeat.beat()
        return len(deliveries)

    def _read(self) -> list[Delivery]:
        streams: Any = self._redis.xread({INGEST: "0-0"}, count=READ_BATCHES, block=BLOCK_MS)
        deliveries = []
        for _, entries in streams or ():
            for entry_id, fields in entries:
                try:
                    deliveries.append(
                        Delivery(
                            id=entry_id,
                            run_id=fields[b"run"].decode(),
                            attempt=int(fields[b"attempt"]),
                            batch=int(fields[b"batch"]),
                            events=fields[b"events"],
                        )
                    )
                except (KeyError, ValueError):
                    log.exception("Entry %s of the ingest stream is not ours; removed.", entry_id)
                    self._redis.xdel(INGEST, entry_id)
        return deliveries

    def _store(self, run_id: str, attempt: int, deliveries: list[Delivery]) -> StoreResult:
        try:
            return self._store_together(run_id, attempt, deliveries)
        except _AWAY:
            raise
        except Exception:
            log.exception("Batches of %s/%s could not be stored together; trying one by one.", run_id, attempt)
            self._memories.pop((run_id, attempt), None)
        frames: list[tuple[int, bytes]] = []
        has_gap = False
        for delivery in deliveries:
            try:
                stored = self._store_together(run_id, attempt, [delivery])
            except _AWAY:
                raise
            except Exception as error:
                log.exception("Batch %s of %s/%s is left out.", delivery.batch, run_id, attempt)
                self._memories.pop((run_id, attempt), None)
                skip(delivery, reason=f"{type(error).__name__}: {error}", now=datetime.now(UTC))
            else:
                frames += stored.frames
                has_gap = has_gap or stored.has_gap
        return StoreResult(frames=tuple(frames), has_gap=has_gap)

    def _store_together(self, run_id: str, attempt: int, deliveries: Sequence[Delivery]) -> StoreResult:
        memory = self._memories.get((run_id, attempt))
        if memory is None:
            if len(self._memories) >= MAX_MEMORIES:
                self._memories.pop(next(iter(self._memories)))
            memory = self._memories[run_id, attempt] = AttemptCache()
        stored = store(deliveries, memory=memory, now=datetime.now(UTC))
        if stored.frames:
            self._compactor.saw(
                run_id, num_bytes=sum(len(payload) for _, payload in stored.frames), num_frames=len(stored.frames)
            )
        return stored

    def _hand_on(self, run_id: str, attempt: int, deliveries: list[Delivery], stored: StoreResult) -> None:
        """Free the ingest stream, then publish. Dying in between costs nothing: stored batches are known as such."""
        pipe = self._redis.pipeline(transaction=False)
        pipe.xdel(INGEST, *[delivery.id for delivery in deliveries])
        if stored.has_gap:  # Redis is older than the database or lost entries: ingest asks the database again
            pipe.delete(expect_key(run_id, attempt))
        for seq, payload in stored.frames:
            fields: dict[Any, Any] = {"run": run_id, "seq": seq}
            if len(payload) <= MAX_INLINE_BYTES:
                fields["frame"] = payload
            pipe.xadd(LIVE, fields, maxlen=LIVE_ENTRIES, approximate=True)
        if stored.frames:
            pipe.xadd(LIVE, {"run": run_id}, maxlen=LIVE_ENTRIES, approximate=True)
        for name, amount in _totals(deliveries, stored).items():
            pipe.hincrby(INGEST_TOTALS, name, amount)
        results = pipe.execute(raise_on_error=False)
        for problem in (r for r in results if isinstance(r, Exception)):
            log.warning("Pages were not told of new frames of %s: %s", run_id, problem)

    def _tell(self, trouble: str) -> None:
        if trouble != self._trouble:
            log.warning("%s Batches stay where they are until it is better.", trouble)
        self._trouble = trouble

    def _beat(self) -> None:
        if time.monotonic() - self._beaten_at >= BEAT_SECONDS:
            try:
                beat(self._redis, trouble=self._trouble)
            except redis.OutOfMemoryError:
                log.warning("Redis is full; it empties as batches are stored.")
            except redis.RedisError as error:
                log.debug("No beat: %s", error)
            self._beaten_at = time.monotonic()


def _totals(deliveries: Sequence[Delivery], stored: StoreResult) -> dict[str, int]:
    """Return by how much these batches move the counts of what was stored."""
    num_bytes = sum(len(delivery.events) for delivery in deliveries)
    return {"batches": len(deliveries), "frames": len(stored.frames), "bytes": num_bytes}


def _attempt_of(delivery: Delivery) -> tuple[str, int]:
    return delivery.run_id, delivery.attempt
