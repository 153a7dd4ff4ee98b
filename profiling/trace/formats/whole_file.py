"""Files that a reader takes whole into memory, within a bound."""

from pathlib import Path

from profiling.trace.formats.unpack import UnpackedFile
from profiling.trace.limits import Limits, Progress, Unreadable
from profiling.trace.writer import StoreWriter

_MOST_BYTES = 512 << 20


def whole_file(path: Path, writer: StoreWriter, *, progress: Progress, limits: Limits) -> bytes:
    """Return the unpacked bytes of a file; a missing end becomes a note. Raises: Unreadable beyond 512 MiB."""
    with UnpackedFile(path, limits=limits, progress=progress) as file:
        content = file.read(_MOST_BYTES + 1)
        if len(content) > _MOST_BYTES:
            raise Unreadable(f"The file holds more than {_MOST_BYTES >> 20} MiB, which is the most of its format.")
        if file.problem:
            writer.note("warning", file.problem)
    return content
