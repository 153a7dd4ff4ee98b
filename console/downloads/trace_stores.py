"""Open stores, kept for the next request: opening one takes longer than most questions."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from profiling.trace.store import Store

MOST_IDLE = 8
IDLE_SECONDS = 300.0

_Key = tuple[str, int, int]
"""Path, inode and time of change: a file that was imported again is another one at the same path."""

_idle: list[tuple[_Key, float, Store]] = []  # the file, when it was put back; the newest last
_lent: list[tuple[_Key, Store]] = []
_lock = threading.Lock()


@contextmanager
def opened(path: Path) -> Iterator[Store]:
    """Lend an open store to one thread. Raises: NotAStore; FileNotFoundError once the trace was deleted."""
    state = path.stat()
    key = (str(path), state.st_ino, state.st_mtime_ns)
    store = _take(key) or _lend(key, Store(path))
    try:
        yield store
    except BaseException:
        with _lock:
            _lent.remove((key, store))
        store.close()
        raise
    for old in _put(key, store):
        old.close()


def _take(key: _Key) -> Store | None:
    """Lend an idle store, else another one of one that is lent: they share what was read of the file."""
    with _lock:
        at = next((i for i in range(len(_idle) - 1, -1, -1) if _idle[i][0] == key), -1)
        if at >= 0:
            found = _idle.pop(at)[2]
        else:
            lent = next((store for known, store in _lent if known == key), None)
            if lent is None:
                return None
            found = lent.another()
    return _lend(key, found)


def _lend(key: _Key, store: Store) -> Store:
    with _lock:
        _lent.append((key, store))
    return store


def _put(key: _Key, store: Store) -> list[Store]:
    """Keep the store; return those that are to be closed for it."""
    now = time.monotonic()
    with _lock:
        _lent.remove((key, store))
        _idle.append((key, now, store))
        over = len(_idle) - MOST_IDLE
        gone = [entry for i, entry in enumerate(_idle) if i < over or now - entry[1] > IDLE_SECONDS]
        _idle[:] = [entry for entry in _idle if entry not in gone]
    return [entry[2] for entry in gone]
