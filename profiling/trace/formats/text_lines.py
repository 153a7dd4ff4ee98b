"""The lines of a text that may be packed and of any length."""

from collections.abc import Iterator

from profiling.trace.formats.unpack import UnpackedFile

_LONGEST_LINE = 1 << 16


def lines(file: UnpackedFile) -> Iterator[str]:
    """Yield the lines of a text; what is longer than any line of a table ends it."""
    rest = b""
    while piece := file.read(1 << 20):
        rest += piece
        *whole, rest = rest.split(b"\n")
        for line in whole:
            yield line[:_LONGEST_LINE].decode(errors="replace")
        if len(rest) > _LONGEST_LINE:
            return
    yield from rest.decode(errors="replace").splitlines()
