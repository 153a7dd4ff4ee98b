"""Read a file that may be packed by gzip, as far as it goes and no further than allowed.

Text of UTF-16, as shells of Windows write what they redirect, comes out as UTF-8; it is told by its first two bytes.
"""

import codecs
import zlib
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from profiling.trace.limits import DEFAULT, Limits, Progress, Unreadable

_GZIP = b"\x1f\x8b"
_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_HEAD = 1 << 20
_HEAD_MEMBERS = 8192
_HEAD_PIECE = 1 << 12
"""Members of a packed file whose beginning is looked at, and what is taken of it at a time: tens of ms of a core."""
_PIECE = 1 << 18
_PACKED_PIECE = 1 << 15
"""What is left of a piece is copied for each member of a file, and a hostile one has very many."""
_FREE = 256 << 20
"""Unpacked bytes below which the ratio does not matter."""


def is_packed(path: Path) -> bool:
    """Return True for a file that is packed by gzip."""
    with path.open("rb") as file:
        return file.read(len(_GZIP)) == _GZIP


def head(path: Path, size: int = 1 << 16) -> bytes:
    """Return the first bytes of a file, unpacked; fewer if it is broken. No more than its first mebibyte is read."""
    try:
        with path.open("rb") as file:
            raw = file.read(_HEAD)
    except OSError:
        return b""
    begin = _unpacked(raw, size) if raw.startswith(_GZIP) else raw[:size]
    return begin.decode("utf-16", errors="replace").encode() if begin.startswith(_UTF_16) else begin


def _unpacked(raw: bytes, size: int) -> bytes:
    """Return up to `size` bytes of what the beginning of a packed file holds."""
    unpacked = bytearray()
    place, packed = 0, zlib.decompressobj(31)
    members = 1
    while place < len(raw) and len(unpacked) < size:
        piece = raw[place : place + _HEAD_PIECE]
        try:
            unpacked += packed.decompress(piece, size - len(unpacked))
        except zlib.error:
            break
        if not packed.eof:
            place += len(piece)
            continue
        place += len(piece) - len(packed.unused_data)
        members += 1
        if members > _HEAD_MEMBERS or not raw.startswith(_GZIP, place):
            break
        packed = zlib.decompressobj(31)
    return bytes(unpacked)


class UnpackedFile:
    """The bytes of a file, unpacked. `problem` says, once all was read, why the end is missing. Raises: OSError."""

    def __init__(self, path: Path, *, limits: Limits = DEFAULT, progress: Progress = lambda _: None) -> None:
        self.problem = ""
        self._file = path.open("rb")
        self._size = max(path.stat().st_size, 1)
        self._limits = limits
        self._progress = progress
        self._given = 0
        self._taken = 0
        self._ready = bytearray()
        self._pending = b""
        first = self._file.read(2)
        self._file.seek(0)
        self._packed = zlib.decompressobj(31) if first == _GZIP else None
        self._is_over = False
        self._beginning: bytes | None = b""
        """What came while it was not clear whether it is UTF-16; None afterwards."""
        self._decoder: codecs.IncrementalDecoder | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def read(self, size: int) -> bytes:
        """Return up to `size` bytes, b"" at the end. Raises: Unreadable if more comes out than is allowed."""
        while len(self._ready) < size and not self._is_over:
            self._ready += self._text(self._piece())
        piece = bytes(self._ready[:size])
        del self._ready[:size]
        self._given += len(piece)
        self._progress(min(self._taken / self._size, 1.0))
        return piece

    @property
    def read_so_far(self) -> str:
        """How much was read, and which share of the file that is, in words."""
        share = min(self._taken / self._size, 1.0)
        return f"{self._given / (1 << 20):,.1f} MiB were read, {share:.0%} of what the file holds"

    def copy_to(self, target: BinaryIO) -> None:
        """Write all that is left of the file into another one. Raises: Unreadable, as `read` does."""
        while piece := self.read(1 << 20):
            target.write(piece)

    def _text(self, piece: bytes) -> bytes:
        """Return a piece of UTF-16 as UTF-8, any other as it is."""
        if self._beginning is not None:
            piece = self._beginning + piece
            if len(piece) < len(codecs.BOM_UTF16_LE) and not self._is_over:
                self._beginning = piece
                return b""
            self._beginning = None
            if piece.startswith(_UTF_16):
                self._decoder = codecs.getincrementaldecoder("utf-16")(errors="replace")
        return piece if self._decoder is None else self._decoder.decode(piece, self._is_over).encode()

    def _piece(self) -> bytes:
        if self._packed is None:
            piece = self._file.read(_PIECE)
            self._is_over = not piece
            self._taken += len(piece)
            self._check(self._given + len(self._ready) + len(piece))
            return piece
        return self._unpack(self._packed)

    def _unpack(self, packed: "zlib._Decompress") -> bytes:
        """Unpack the next piece, at most 4 MiB of it at a time, so that a bomb is seen before it goes off."""
        source = self._pending
        if not source:
            source = self._file.read(_PACKED_PIECE)
            self._taken += len(source)
        if not source:
            self._is_over = True
            if not packed.eof:
                self.problem = "The packed file is cut off."
            return b""
        if packed.eof:  # another member follows, or padding
            if not source.startswith(_GZIP):
                self._is_over = True
                return b""
            self._packed = packed = zlib.decompressobj(31)
        try:
            piece = packed.decompress(source, 4 << 20)
        except zlib.error as error:
            self._is_over = True
            self.problem = f"The packed file is damaged: {error}."
            return b""
        self._pending = packed.unused_data if packed.eof else packed.unconsumed_tail
        self._check(self._given + len(self._ready) + len(piece))
        return piece

    def _check(self, unpacked: int) -> None:
        limits = self._limits
        if unpacked > limits.unpacked:
            raise Unreadable(
                f"The file holds more than {limits.unpacked / (1 << 30):,.0f} GiB unpacked, which is the most."
            )
        if self._packed is not None and unpacked > _FREE and unpacked > limits.ratio * self._taken:
            raise Unreadable(
                f"The file unpacks to more than {limits.ratio} times its size, which no trace does: it is refused."
            )
