"""Exports of Nsight Systems to SQLite: what `nsys export -t sqlite` writes."""

from pathlib import Path

from profiling.trace.formats.nsys_export import is_export, read_export
from profiling.trace.formats.sqlite_tables import MAGIC
from profiling.trace.limits import Limits, Progress
from profiling.trace.writer import StoreWriter


class NsysReader:
    """Reads one export."""

    name = "nsys"
    title = "an SQLite export of Nsight Systems"
    suffixes = (".sqlite",)

    def sniff(self, path: Path, head: bytes, /) -> bool:
        """A database with the tables that every export has."""
        return head.startswith(MAGIC) and is_export(path)

    def read(self, path: Path, writer: StoreWriter, *, progress: Progress, limits: Limits) -> None:
        """Put the export into a store. Raises: sqlite3.Error for a damaged one."""
        read_export(path, writer, progress=progress, limits=limits)


PLUGIN = NsysReader()
