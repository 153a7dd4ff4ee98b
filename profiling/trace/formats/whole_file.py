"""Files that a reader takes whole into memory, within a bound."""

import contextlib
import re
from pathlib import Path
from typing import Any

import orjson

from profiling.trace.formats.unpack import UnpackedFile
from profiling.trace.limits import Limits, Progress, Unreadable
from profiling.trace.writer import StoreWriter

_MOST_BYTES = 512 << 20
_MOST_MEMORY = 3 << 30
_COSTS = {b"{": 200, b"[": 80, b",": 40}
"""Bytes of an object, a list and a number in either, as Python holds them: some 3 bytes of a file can be a hundred."""

_SIGN = re.compile(rb'"(?:[^"\\]|\\.)*+(?:"|\Z)|[\[\]{}]', re.S)
"""A text, within which brackets mean nothing, or a bracket."""
_ENDS = {b"{": b"}", b"[": b"]"}
_DEEPEST = 64
"""Brackets around a value, beyond which a hostile file would cost the square of its depth."""


def whole_file(path: Path, writer: StoreWriter, *, progress: Progress, limits: Limits) -> bytes:
    """Return the unpacked bytes of a file; a missing end becomes a note. Raises: Unreadable beyond 512 MiB."""
    with UnpackedFile(path, limits=limits, progress=progress) as file:
        content = file.read(_MOST_BYTES + 1)
        if len(content) > _MOST_BYTES:
            raise Unreadable(f"The file holds more than {_MOST_BYTES >> 20} MiB, which is the most of its format.")
        if file.problem:
            writer.note("warning", file.problem)
    return content


def whole_json(path: Path, writer: StoreWriter, *, progress: Progress, limits: Limits, may_be_cut: bool = False) -> Any:
    """Return what a file of JSON holds; where it `may_be_cut`, what it holds up to there, with a note.

    Raises: Unreadable for other text, or for more than memory holds.
    """
    content = whole_file(path, writer, progress=progress, limits=limits).removeprefix(b"\xef\xbb\xbf")
    check_room(content)
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError as error:
        with contextlib.suppress(orjson.JSONDecodeError):
            if may_be_cut:
                parsed = orjson.loads(_closed(content))
                writer.note("warning", "The file is cut off or damaged; what comes after that is missing.")
                return parsed
        raise Unreadable(f"The file is cut off or damaged: {error}.") from error


def _closed(content: bytes) -> bytes:
    """Return JSON up to the last element of a list that is whole, and the ends of all that it lies in."""
    opened = bytearray()
    end, closing = 0, b""
    for match in _SIGN.finditer(content):
        sign = match[0]
        if sign in _ENDS and len(opened) < _DEEPEST:
            opened += _ENDS[sign]
        elif opened and opened[-1] == sign[0]:
            opened.pop()
            if opened[-1:] == b"]":
                end, closing = match.end(), bytes(reversed(opened))
        elif sign[:1] != b'"':
            break
    return content[:end] + closing


def check_room(content: bytes) -> None:
    """Refuse JSON that would not fit: the parser dies where memory ends. Raises: Unreadable."""
    if sum(cost * content.count(sign) for sign, cost in _COSTS.items()) > _MOST_MEMORY:
        raise Unreadable(
            f"The file holds more values than the {_MOST_MEMORY >> 30} GiB of memory that an import may use. Record "
            "fewer steps."
        )
