"""Open stores, kept for the next request: opening one takes longer than most questions."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from profiling.trace.store import Store

MOST_IDLE = 8
IDLE_SECONDS = 300.0

_idle: list[tuple[str, float, Store]] = []  # path, when it was put back; the newest last
_lock = threading.Lock()


@contextmanager
def opened(path: Path) -> Iterator[Store]:
    """Lend an open store to one thread. Raises: NotAStore; FileNotFoundError once the trace was deleted."""
    if not path.is_file():
        raise FileNotFoundError(path)
    store = _take(str(path)) or Store(path)
    try:
        yield store
    except BaseException:
        store.close()
        raise
    for old in _put(str(path), store):
        old.close()


def _take(path: str) -> Store | None:
    with _lock:
        for i in range(len(_idle) - 1, -1, -1):
            if _idle[i][0] == path:
                return _idle.pop(i)[2]
    return None


def _put(path: str, store: Store) -> list[Store]:
    """Keep the store; return those that are to be closed for it."""
    now = time.monotonic()
    with _lock:
        _idle.append((path, now, store))
        over = len(_idle) - MOST_IDLE
        gone = [entry for i, entry in enumerate(_idle) if i < over or now - entry[1] > IDLE_SECONDS]
        _idle[:] = [entry for entry in _idle if entry not in gone]
    return [entry[2] for entry in gone]
