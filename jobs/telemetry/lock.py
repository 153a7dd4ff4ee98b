"""One holder at a time: a file lock beside SQLite, an advisory lock on PostgreSQL."""

import fcntl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from zlib import crc32

from django.conf import settings
from django.db import connection


@contextmanager
def sole_holder(name: str, *, ending: threading.Event, poll_seconds: float = 0.5) -> Iterator[bool]:
    """Wait until no other process holds `name`, hold it for the block, and lose it with the process or connection.

    Yields False, without it, if `ending` is set before its turn comes.
    """
    if connection.vendor == "postgresql":
        key = crc32(f"pitwall.{name}".encode())
        while not _advisory("pg_try_advisory_lock", key):
            if ending.wait(poll_seconds):
                yield False
                return
        try:
            yield True
        finally:
            if connection.connection is not None and not connection.connection.closed:
                _advisory("pg_advisory_unlock", key)
        return
    path = Path(settings.DATA_DIR) / f"{name}.lock"
    with path.open("w") as file:
        while not _flock(file.fileno()):
            if ending.wait(poll_seconds):
                yield False
                return
        yield True


def _advisory(function: str, key: int) -> bool:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {function}(%s)", [key])
        return bool(cursor.fetchone()[0])


def _flock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
