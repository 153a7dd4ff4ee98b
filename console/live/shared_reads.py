"""What many websockets ask of the database: read once per web process, for all that ask meanwhile."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

from channels.db import database_sync_to_async

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SharedRead(Generic[T]):
    """What the database said, and since when (`time.monotonic`) it may have changed."""

    value: T
    asked_at: float


class SharedReads(Generic[K, T]):
    """Remembers what `read` returned for a key, `max_age` seconds at most, until it is forgotten or there are more than
    `max_keys`.
    """

    def __init__(self, read: Callable[[K], T], *, max_age: float, max_keys: int = 1000) -> None:
        self._read = database_sync_to_async(read, thread_sensitive=False)
        self._max_age = max_age
        self._max_keys = max_keys
        self._cached: OrderedDict[K, tuple[float, asyncio.Future[T]]] = OrderedDict()

    async def get(self, key: K) -> SharedRead[T]:
        """Return what was read, or is being read. Raises what reading raises, to all that wait for it."""
        at, reading = self._cached.get(key, (0.0, None))
        if reading is None or time.monotonic() - at > self._max_age:
            at, reading = time.monotonic(), asyncio.ensure_future(self._read(key))
            self._cached[key] = at, reading
            if len(self._cached) > self._max_keys:
                self._cached.popitem(last=False)
        try:
            return SharedRead(await asyncio.shield(reading), at)
        except Exception:
            self.forget(key)
            raise

    def forget(self, key: K) -> None:
        """It changed: what is being read right now may be older, and is for those who asked before."""
        self._cached.pop(key, None)


def one_per_loop(make: Callable[[], T]) -> Callable[[], T]:
    """Return a function that returns what `make` made for the running event loop."""
    made: WeakKeyDictionary[asyncio.AbstractEventLoop, T] = WeakKeyDictionary()

    def of_this_loop() -> T:
        loop = asyncio.get_running_loop()
        if loop not in made:
            made[loop] = make()
        return made[loop]

    return of_this_loop
