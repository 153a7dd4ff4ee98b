"""The contract of a reader of traces, and the lookup in its folder: one file a format, told by the content."""

from pathlib import Path
from typing import Protocol, cast

from profiling import plugins
from profiling.trace.limits import Limits, Progress
from profiling.trace.writer import StoreWriter


class Reader(Protocol):
    """Reads files of one format."""

    name: str
    title: str
    """What people call the format."""
    suffixes: tuple[str, ...]
    """Endings of file names that such files usually have."""

    def sniff(self, path: Path, head: bytes, /) -> bool:
        """Return True if a file is of this format. `head` holds its first 64 KiB, unpacked if they were packed."""

    def read(self, path: Path, writer: StoreWriter, *, progress: Progress, limits: Limits) -> None:
        """Put the whole file into a store. Raises: Unreadable."""


def readers() -> tuple[Reader, ...]:
    """Return all readers, by name."""
    folder = "profiling.trace.readers"
    return tuple(cast(Reader, plugins.load(folder, name)) for name in plugins.names(folder))
