"""Import a trace file into a store, whatever its format."""

import errno
import gc
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from profiling.trace import unpack
from profiling.trace.limits import DEFAULT, Limits, Progress, Unreadable
from profiling.trace.readers.reader import Reader, readers
from profiling.trace.schema import StoreFacts
from profiling.trace.writer import StoreWriter, TooMuch

_READING = 0.85
"""The share of an import that is reading; the rest is sorting."""


def import_trace(
    source: Path, target: Path, *, progress: Progress = lambda _: None, limits: Limits = DEFAULT
) -> StoreFacts:
    """Read `source` into a new store at `target` and return what it holds. On failure nothing is left there.

    Raises: Unreadable, with a sentence for whoever brought the file; MemoryError, or OSError where the disk is full.
    """
    import duckdb

    reader = reader_of(source)
    try:
        with StoreWriter(target, source=reader.name, most_samples=limits.samples) as writer, _without_collector():
            _read(reader, source, writer, progress=lambda share: progress(_READING * share), limits=limits)
            facts = writer.finish()
    except duckdb.Error as error:
        raise _of_the_store(error) from error
    if not facts.events and not facts.samples:
        target.unlink()
        raise Unreadable(f"The file is {reader.title}, but holds no events.")
    progress(1.0)
    return facts


def reader_of(source: Path) -> Reader:
    """Return the reader for a file, by its content. Raises: Unreadable."""
    if not source.stat().st_size:
        raise Unreadable("The file is empty.")
    beginning = unpack.head(source)
    for reader in readers():
        try:
            if reader.sniff(source, beginning):
                return reader
        except sqlite3.Error as error:
            raise Unreadable(f"The file is a damaged database ({error}).") from error
    known = ", ".join(reader.title for reader in readers())
    raise Unreadable(f"The file is of no format that can be read here: {known}.")


def _read(reader: Reader, source: Path, writer: StoreWriter, *, progress: Progress, limits: Limits) -> None:
    """Have a reader read. Raises: Unreadable for whatever it stumbles over."""
    try:
        reader.read(source, writer, progress=progress, limits=limits)
    except Unreadable:
        raise
    except TooMuch as error:
        raise Unreadable(str(error)) from error
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError, sqlite3.Error) as error:
        raise Unreadable(f"The file is damaged: as {reader.title} it cannot be read ({_short(error)}).") from error


@contextmanager
def _without_collector() -> Iterator[None]:
    """Look for no garbage: the millions of objects of a file would wake the collector again and again, and none of them
    is in a cycle.
    """
    is_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if is_on:
            gc.enable()


def _of_the_store(error: Exception) -> Exception:
    """Return what an error of the database means that a store is: it tells a full disk in several classes of errors."""
    import duckdb

    if isinstance(error, duckdb.OutOfMemoryException):
        return MemoryError(str(error))
    if isinstance(error, duckdb.IOException) or "Could not write" in str(error) or "No space left" in str(error):
        return OSError(errno.ENOSPC, "the console's disk has no room for what is made of it")
    return Unreadable(f"What the file holds cannot be sorted into a trace ({_short(error)}).")


def _short(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error)[:200]}"
