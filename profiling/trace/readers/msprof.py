"""Databases of Ascend's profilers. Not run on Ascend."""

from pathlib import Path

from profiling.trace.formats.msprof_tables import is_database, read_database
from profiling.trace.formats.sqlite_tables import MAGIC
from profiling.trace.limits import Limits, Progress
from profiling.trace.writer import StoreWriter


class MsprofReader:
    """Reads one database."""

    name = "msprof"
    title = "a database of Ascend's profiler"
    suffixes = (".db",)

    def sniff(self, path: Path, head: bytes, /) -> bool:
        """A database with the tables of the documented schema."""
        return head.startswith(MAGIC) and is_database(path)

    def read(self, path: Path, writer: StoreWriter, *, progress: Progress, limits: Limits) -> None:
        """Put the database into a store. Raises: sqlite3.Error for a damaged one."""
        read_database(path, writer, progress=progress, limits=limits)


PLUGIN = MsprofReader()
