"""Our own recordings of Ascend's profiler: its folder in a zip. Its database is read, else its trace_view.json.

Not run on Ascend: written after the documented names of files.
"""

import os
import tempfile
import zipfile
import zlib
from pathlib import Path, PurePosixPath

from profiling.trace.formats.msprof_tables import is_database, read_database
from profiling.trace.formats.torch_trace import read_trace
from profiling.trace.limits import Limits, Progress, Unreadable
from profiling.trace.writer import StoreWriter

_MOST_MEMBERS = 100_000
_MOST_DIRECTORY = 16 << 20
_TAIL = (1 << 16) + 22  # bytes in which the end of an archive's list must stand
_PIECE = 1 << 20


class MsprofZipReader:
    """Reads one zip."""

    name = "msprof-zip"
    title = "a zipped folder of Ascend's profiler"
    suffixes = (".msprof.zip",)

    def sniff(self, path: Path, head: bytes, /) -> bool:
        """A zip with a database or a trace of that profiler."""
        return head.startswith(b"PK") and _member(path) is not None

    def read(self, path: Path, writer: StoreWriter, *, progress: Progress, limits: Limits) -> None:
        """Put the database or the trace into a store. Raises: Unreadable."""
        member = _member(path)
        if member is None:
            raise Unreadable("The zip holds neither a database of Ascend's profiler nor a trace_view.json.")
        with tempfile.TemporaryDirectory(prefix="pitwall-unzip-") as folder:
            target = Path(folder) / PurePosixPath(member.filename).name
            _extract(path, member, target, limits)
            progress(0.2)
            if target.suffix == ".db":
                if not is_database(target):
                    raise Unreadable(f"{target.name} in the zip is no database of Ascend's profiler.")
                read_database(target, writer, progress=lambda share: progress(0.2 + 0.8 * share), limits=limits)
            else:
                read_trace(target, writer, progress=lambda share: progress(0.2 + 0.8 * share), limits=limits)
                writer.meta("tool", "msprof")


def _member(path: Path) -> zipfile.ZipInfo | None:
    """Return the file to read: the database of torch's profiler, else another database, else the trace."""
    try:
        if _directory_bytes(path) > _MOST_DIRECTORY:
            return None
        with zipfile.ZipFile(path) as archive:
            listed = archive.infolist()[:_MOST_MEMBERS]
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
        return None
    names = {PurePosixPath(member.filename).name: member for member in listed}
    for prefix in ("ascend_pytorch_profiler", "msprof_"):
        for name in sorted(names):
            if name.startswith(prefix) and name.endswith(".db"):
                return names[name]
    return names.get("trace_view.json")


def _directory_bytes(path: Path) -> int:
    """Return how long the archive says its list of members is: all of it is read at once. Raises: OSError."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _TAIL))
        tail = file.read()
    at = tail.rfind(b"PK\x05\x06")
    return int.from_bytes(tail[at + 12 : at + 16], "little") if at >= 0 else 0


def _extract(path: Path, member: zipfile.ZipInfo, target: Path, limits: Limits) -> None:
    """Write one member to a file of ours, no larger than allowed, whatever it says of itself. Raises: Unreadable."""
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise Unreadable(f"{target.name} in the zip is packed in another way than profilers pack. Pack it anew.")
    most = min(limits.unpacked, max(member.compress_size, _PIECE) * limits.ratio)
    written = 0
    try:
        with zipfile.ZipFile(path) as archive, archive.open(member) as source, target.open("wb") as file:
            while piece := source.read(_PIECE):
                written += len(piece)
                if written > most:
                    raise Unreadable(f"{target.name} in the zip unpacks to more than it may: it is refused.")
                file.write(piece)
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError) as error:
        raise Unreadable(f"The zip is damaged: {error}.") from error


PLUGIN = MsprofZipReader()
