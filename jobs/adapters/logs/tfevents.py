"""Scalars of TensorBoard's event files, read while they are written. Standard library only.

A file is a row of records: length (uint64), its checksum, the data, their checksum (uint32 each, little-endian). The
data are a protobuf message `Event`, of which a few fields are read: wall_time 1, step 2, summary 5; in the summary the
values 1, each with tag 1 and simple_value 2 or tensor 8 (TensorFlow's event.proto, summary.proto and tensor.proto).
Checksums are not looked at: a record that is not whole yet is left for the next time, and what is no message is passed
over.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

READ_BYTES = 4 << 20
_HEAD = struct.Struct("<QI")
_TAIL_BYTES = 4
_MOST_BYTES = 64 << 20  # of one record: a larger length is not one
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FLOAT, _DOUBLE = 1, 2  # DataType of a tensor
_FORMATS = {_FLOAT: "f", _DOUBLE: "d"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scalar:
    """One value: `at` is when it was written, in Unix seconds."""

    tag: str
    step: int
    at: float
    value: float


@dataclass(slots=True, kw_only=True)
class EventFile:
    """One event file, and how far it has been read."""

    path: Path
    _position: int = field(default=0, init=False)
    _is_broken: bool = field(default=False, init=False)

    def read(self) -> Iterator[Scalar]:
        """Yield the scalars of the records that are whole and were not read before. Raises: OSError."""
        while not self._is_broken:
            with self.path.open("rb") as file:
                file.seek(self._position)
                data = file.read(READ_BYTES)
                data += file.read(max(0, self._first_record_bytes(data) - len(data)))
            start = self._position
            for record in self._records(data):
                yield from scalars(record)
            if self._position == start:
                return

    def _first_record_bytes(self, data: bytes) -> int:
        if len(data) < _HEAD.size:
            return 0
        length: int = _HEAD.unpack_from(data)[0]
        return _HEAD.size + length + _TAIL_BYTES if length <= _MOST_BYTES else 0

    def _records(self, data: bytes) -> Iterator[bytes]:
        at = 0
        while at + _HEAD.size <= len(data):
            length = _HEAD.unpack_from(data, at)[0]
            if length > _MOST_BYTES:
                self._is_broken = True
                return
            end = at + _HEAD.size + length + _TAIL_BYTES
            if end > len(data):
                return
            self._position += end - at
            yield data[at + _HEAD.size : end - _TAIL_BYTES]
            at = end


def scalars(record: bytes) -> list[Scalar]:
    """Return the scalars of one `Event`; none of a message that cannot be read."""
    at, step, tagged = 0.0, 0, []
    try:
        for number, kind, value in _fields(record):
            if (number, kind) == (1, _FIXED64):
                (at,) = struct.unpack("<d", _as_bytes(value))
            elif (number, kind) == (2, _VARINT):
                step = _signed(_as_int(value))
            elif (number, kind) == (5, _BYTES):
                for part, wire, content in _fields(_as_bytes(value)):
                    if (part, wire) == (1, _BYTES):
                        tagged += _value(_as_bytes(content))
    except (ValueError, struct.error, IndexError):
        return []
    return [Scalar(tag=tag, step=step, at=at, value=number) for tag, number in tagged]


def _value(message: bytes) -> list[tuple[str, float]]:
    tag, number = "", None
    for part, kind, content in _fields(message):
        if (part, kind) == (1, _BYTES):
            tag = _as_bytes(content).decode("utf-8", "replace")
        elif (part, kind) == (2, _FIXED32):
            (number,) = struct.unpack("<f", _as_bytes(content))
        elif (part, kind) == (8, _BYTES):
            number = _tensor(_as_bytes(content))
    return [(tag, number)] if tag and number is not None else []


def _tensor(message: bytes) -> float | None:
    """Return the only number of a TensorProto: dtype 1, tensor_content 4, float_val 5, double_val 6."""
    letter = ""
    numbers: list[float] = []
    for part, kind, content in _fields(message):
        if (part, kind) == (1, _VARINT):
            letter = _FORMATS.get(_as_int(content), "")
        elif part in (4, 5, 6) and kind in (_BYTES, _FIXED32, _FIXED64) and letter:
            data = _as_bytes(content)
            if len(numbers) or len(data) // struct.calcsize(letter) != 1:
                return None  # several: a tensor of many takes memory
            numbers += struct.unpack(f"<{len(data) // struct.calcsize(letter)}{letter}", data)
    return numbers[0] if len(numbers) == 1 else None


def _fields(message: bytes) -> Iterator[tuple[int, int, int | bytes]]:
    """Yield number, wire type and content of each field of a protobuf message. Raises: ValueError, IndexError."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        kind = key & 7
        if kind == _VARINT:
            value, at = _varint(message, at)
            yield key >> 3, kind, value
            continue
        size = {_FIXED64: 8, _FIXED32: 4}.get(kind)
        if kind == _BYTES:
            size, at = _varint(message, at)
        if size is None or at + size > len(message):
            raise ValueError("not a protobuf message")
        yield key >> 3, kind, message[at : at + size]
        at += size


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if not byte & 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("not a protobuf message")


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def _as_bytes(content: int | bytes) -> bytes:
    assert isinstance(content, bytes)
    return content


def _as_int(content: int | bytes) -> int:
    assert isinstance(content, int)
    return content
