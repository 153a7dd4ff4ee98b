"""The contract of a reader of traces, and the lookup in its folder: one file a format, told by the content."""

from pathlib import Path
from typing import Protocol, cast

from profiling import plugins
from profiling.trace.limits import Limits, Progress
from profiling.trace.writer import StoreWriter


class Reader(Protocol):
    """Reads files of one format.

    Files come from anywhere: one that is cut off gives what it has, with a note, or is refused in a sentence, and what
    goes beyond `limits` is left out with a note. The same file gives the same store.
    """

    name: str
    """That of its file, with hyphens."""
    title: str
    """What people call the format."""
    suffixes: tuple[str, ...]
    """Endings of file names that such files usually have."""

    def sniff(self, path: Path, head: bytes, /) -> bool:
        """Return True if a file is of this format, which is true of one reader at most, whatever the file is called.

        `head` holds its first 64 KiB, unpacked if they were packed.
        """

    def read(self, path: Path, writer: StoreWriter, *, progress: Progress, limits: Limits) -> None:
        """Put the whole file into a store, with the `tool` that made it. Raises: Unreadable.

        What else a reader stumbles over (ValueError, KeyError, sqlite3.Error ...) is told as damage by the import.
        """


def readers() -> tuple[Reader, ...]:
    """Return all readers, by name."""
    folder = "profiling.trace.readers"
    return tuple(cast(Reader, plugins.load(folder, name)) for name in plugins.names(folder))
