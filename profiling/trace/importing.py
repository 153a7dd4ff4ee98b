"""Import a trace file into a store, whatever its format."""

import sqlite3
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

    Raises: Unreadable, with a sentence for whoever brought the file.
    """
    reader = reader_of(source)
    with StoreWriter(target, source=reader.name) as writer:
        try:
            reader.read(source, writer, progress=lambda share: progress(_READING * share), limits=limits)
        except TooMuch as error:
            raise Unreadable(str(error)) from error
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError, sqlite3.Error) as error:
            if isinstance(error, Unreadable):
                raise
            raise Unreadable(f"The file is damaged: as {reader.title} it cannot be read ({_short(error)}).") from error
        facts = writer.finish()
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


def _short(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error)[:200]}"
