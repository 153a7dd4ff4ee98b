"""The hub: one tail of the live stream per web process, fanned out in memory to this process's websockets.

It is a fast path only. Whoever falls behind, or misses what Redis lost, is told so (`Mailbox.take_lost`) and reads the
database.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import redis
import redis.asyncio

from console.live.run_headers import forget_header
from console.live.shared_reads import one_per_loop
from console.websocket_protocol import text_frame
from jobs.telemetry.streams import LIVE, async_client

log = logging.getLogger(__name__)

BLOCK_MS = 2000
READ_ENTRIES = 500
MAX_FRAMES = 256
MAX_BYTES = 4 << 20  # of frames waiting for one browser
READY_SECONDS = 2.0


@dataclass(frozen=True, kw_only=True)
class LiveFrame:
    """A frame from the live stream. `utf8` is its text, None if it was too large to travel there: read it from the
    database."""

    seq: int
    utf8: bytes | None

    @cached_property
    def text(self) -> str:
        """Its text, decoded once for all who get it."""
        return (self.utf8 or b"").decode()

    @cached_property
    def wire(self) -> bytes:
        """It as a websocket's frame, made once for all who get it."""
        return text_frame(self.utf8 or b"")


class Shut(Exception):
    """Whoever waits at this mailbox may not go on."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class Mailbox:
    """What waits for one websocket: frames, that headers changed, and that it has to end. Bounded; what does not fit
    sets the lost flag.

    `pass_on`: takes a frame at once while nothing waits and its owner does nothing else, or returns False.
    """

    def __init__(self) -> None:
        self.pass_on: Callable[[LiveFrame], bool] | None = None
        self._frames: deque[LiveFrame] = deque()
        self._num_bytes = 0
        self._changed: set[str] = set()
        self._is_lost = False
        self._shut_with = 0
        self._is_empty = True
        self._waiter: asyncio.Future[None] | None = None

    def put_frame(self, frame: LiveFrame) -> None:
        """Pass a frame on or add it, or drop everything that waits and set the lost flag."""
        if self.pass_on is not None and self._is_at_rest() and self.pass_on(frame):
            return
        self._num_bytes += len(frame.utf8 or b"")
        if len(self._frames) >= MAX_FRAMES or self._num_bytes > MAX_BYTES:
            self.lose()
        else:
            self._frames.append(frame)
            self._wake()

    def put_changed(self, run_id: str) -> None:
        """Note that the run's header changed. Who has been told and has not looked yet is not woken again."""
        if run_id not in self._changed:
            self._changed.add(run_id)
            self._wake()

    def lose(self) -> None:
        """Note that frames are missing here."""
        self._frames.clear()
        self._num_bytes = 0
        self._is_lost = True
        self._wake()

    def shut(self, code: int) -> None:
        """Let nobody go on here; `code` is what the websocket is closed with."""
        self._shut_with = code
        self._wake()

    def check(self) -> None:
        """Raises: Shut, if it was shut."""
        if self._shut_with:
            raise Shut(self._shut_with)

    def take_frames(self) -> list[LiveFrame]:
        """Return the frames that wait, and wait no more."""
        frames = list(self._frames)
        self._frames.clear()
        self._num_bytes = 0
        return frames

    @property
    def has_changed(self) -> bool:
        """Whether a header changed since the last call of take_changed."""
        return bool(self._changed)

    def take_changed(self) -> set[str]:
        """Return the runs whose header changed since the last call."""
        changed, self._changed = self._changed, set()
        return changed

    def take_lost(self) -> bool:
        """Return whether frames were lost since the last call."""
        is_lost, self._is_lost = self._is_lost, False
        return is_lost

    async def wait(self, seconds: float) -> None:
        """Return when something is there, or after `seconds`. Raises: Shut."""
        if self._is_empty:
            # A future and a timer: `asyncio.wait_for` before Python 3.12 makes a task, for each viewer and frame.
            loop = asyncio.get_running_loop()
            self._waiter = loop.create_future()
            timer = loop.call_later(max(0.0, seconds), self._end_wait)
            try:
                await self._waiter
            finally:
                timer.cancel()
                self._waiter = None
        self._is_empty = True
        self.check()

    def _is_at_rest(self) -> bool:
        """Return True if its owner waits here, or has not gone on yet though it was woken, and no frame comes first."""
        return self._waiter is not None and not (self._frames or self._is_lost or self._shut_with)

    def _wake(self) -> None:
        self._is_empty = False
        self._end_wait()

    def _end_wait(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Hub:
    """Tails the live stream while somebody listens. One per event loop: `hub()`."""

    def __init__(self, url: str | None = None) -> None:
        self._url = url
        self._of_run: dict[str, set[Mailbox]] = {}
        self._of_all: set[Mailbox] = set()
        self._task: asyncio.Task[None] | None = None
        self._is_ready = asyncio.Event()

    async def subscribe(self, mailbox: Mailbox, run_id: str | None = None) -> None:
        """Deliver the run's frames and changes (None: changes of every run) from now on.

        Returns once the tail stands, so that what is in the database afterwards and what is delivered leave no gap; or
        after two seconds without Redis: then heartbeats find what is missing.
        """
        if run_id is None:
            self._of_all.add(mailbox)
        else:
            self._of_run.setdefault(run_id, set()).add(mailbox)
        if self._task is None or self._task.done():
            self._is_ready = asyncio.Event()  # its own: the tail before may not have ended
            self._task = asyncio.create_task(self._tail(self._is_ready), name="live tail")
        try:
            await asyncio.wait_for(self._is_ready.wait(), READY_SECONDS)
        except TimeoutError:
            log.warning("A page opened while Redis is away; it follows the database.")

    async def unsubscribe(self, mailbox: Mailbox) -> None:
        """Deliver nothing more; the last one to go ends the tail."""
        self._of_all.discard(mailbox)
        for run_id in [run_id for run_id, boxes in self._of_run.items() if mailbox in boxes]:
            self._of_run[run_id].discard(mailbox)
            if not self._of_run[run_id]:
                del self._of_run[run_id]
        if not self._of_run and not self._of_all and self._task is not None:
            task, self._task = self._task, None
            await asyncio.shield(end(task))  # whoever unsubscribes may be ended meanwhile, and cancelled again

    async def _tail(self, is_ready: asyncio.Event) -> None:
        """Read on and on. A concrete id, never `$`: between two reads with `$`, entries are missed."""
        position, wait, was_away = b"", 0.1, False
        while True:
            client = async_client(self._url)
            try:
                position = await self._start(client, position)
                if was_away:
                    self._lose_all()  # what was published meanwhile may be gone
                was_away, wait = False, 0.1
                is_ready.set()
                while True:
                    streams: Any = await client.xread({LIVE: position}, count=READ_ENTRIES, block=BLOCK_MS)
                    for _, entries in streams or ():
                        for entry_id, fields in entries:
                            self._deliver(fields)
                            position = entry_id
            except Exception as error:
                if not isinstance(error, redis.RedisError):
                    log.exception("The tail of the live stream stumbled; it begins again.")
                elif not was_away:
                    log.warning("The live stream is away: %s", error)
                was_away = True
                is_ready.clear()
                await asyncio.sleep(wait)
                wait = min(wait * 2, 2.0)
            finally:
                await client.aclose()

    async def _start(self, client: redis.asyncio.Redis, position: bytes) -> bytes:
        """Return where to read from: where we were, or, new here or on a stream that began anew, its newest entry."""
        newest: Any = await client.xrevrange(LIVE, count=1)
        top: bytes = newest[0][0] if newest else b"0-0"
        return position if position and _order(position) <= _order(top) else top

    def _deliver(self, fields: dict[bytes, bytes]) -> None:
        run_id = fields.get(b"run", b"").decode()
        if b"seq" not in fields:
            forget_header(run_id)
            for mailbox in (*self._of_all, *self._of_run.get(run_id, ())):
                mailbox.put_changed(run_id)
            return
        boxes = self._of_run.get(run_id)
        if boxes:
            frame = LiveFrame(seq=int(fields[b"seq"]), utf8=fields.get(b"frame"))
            for mailbox in boxes:
                mailbox.put_frame(frame)

    def _lose_all(self) -> None:
        for boxes in self._of_run.values():
            for mailbox in boxes:
                mailbox.lose()


async def end(task: asyncio.Task[None]) -> None:
    """Cancel a task until it has ended, however it ends.

    Once is not enough: `asyncio.wait_for` before Python 3.12, which redis uses, too, loses a cancel that comes in the
    moment of what it waits for. The task of a page that has gone would go on.
    """
    while not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=0.1)
    await asyncio.gather(task, return_exceptions=True)  # an error of it has been seen


def _order(entry_id: bytes) -> tuple[int, int]:
    milliseconds, _, number = entry_id.partition(b"-")
    return int(milliseconds), int(number or 0)


hub = one_per_loop(Hub)
"""The hub of the running event loop."""
