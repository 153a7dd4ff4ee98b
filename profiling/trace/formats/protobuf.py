"""The wire format of protocol buffers, read without a schema: https://protobuf.dev/programming-guides/encoding.

Two formats of traces are messages of a few fields each; their generated classes would be a dependency for every reader.
"""

from collections.abc import Iterator

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
Value = int | memoryview
Field = tuple[int, int, Value]
"""Number, wire type, value: bytes of a text, of bytes or of a message as they lie there, all others as an unsigned
integer."""


class Damaged(ValueError):
    """The bytes are no message, or end in the middle of one."""


def fields(data: memoryview | bytes, *, may_be_cut: bool = False) -> Iterator[Field]:
    """Yield the fields of a message in their order; where it `may_be_cut`, what is there of the last one, too.

    Raises: Damaged, after that.
    """
    view = memoryview(data)
    place, size = 0, len(view)
    while place < size:
        key, place = varint(view, place)
        number, wire = key >> 3, key & 7
        value: Value
        if wire == VARINT:
            value, place = varint(view, place)
        elif wire == BYTES:
            length, place = varint(view, place)
            value, place = view[place : place + length], place + length
        elif wire in (FIXED64, FIXED32):
            length = 8 if wire == FIXED64 else 4
            value, place = int.from_bytes(view[place : place + length], "little"), place + length
        else:
            raise Damaged(f"no field has wire type {wire}")
        if may_be_cut and place > size and wire == BYTES and number:
            yield number, wire, value
        if place > size or not number:
            raise Damaged("a field ends beyond its message")
        yield number, wire, value


def varint(view: memoryview, place: int) -> tuple[int, int]:
    """Return the number that begins at a place, and the place after it. Raises: Damaged."""
    value = shift = 0
    while True:
        if place >= len(view) or shift > 63:
            raise Damaged("a number is cut off")
        byte = view[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, place
        shift += 7


def message(value: Value) -> memoryview:
    """Return the bytes of a field that holds any. Raises: Damaged for a number."""
    if isinstance(value, memoryview):
        return value
    raise Damaged("a number stands where a message is due")


def number(value: Value) -> int:
    """Return the unsigned number of a field that is one. Raises: Damaged for bytes."""
    if isinstance(value, int):
        return value
    raise Damaged("bytes stand where a number is due")


def signed(value: Value) -> int:
    """Return an int64, which is sent as its two's complement. Raises: Damaged for bytes."""
    unsigned = number(value)
    return unsigned - (1 << 64) if unsigned >= 1 << 63 else unsigned


def text(value: Value) -> str:
    """Return a text; what is no UTF-8 is replaced. Raises: Damaged for a number."""
    return bytes(message(value)).decode(errors="replace")
