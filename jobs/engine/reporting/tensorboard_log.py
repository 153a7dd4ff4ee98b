"""Write scalars as a TensorBoard event file. The format is small; TensorBoard's own writer costs seconds of imports.

A record is length (8 bytes), masked CRC-32C of it, data, masked CRC-32C of the data. The data is a protobuf `Event`:
wall_time = 1 (double), step = 2 (varint), file_version = 3 (string), summary = 5 { value = 1 { tag = 1 (string),
simple_value = 2 (float) } }.
Source: tensorflow/core/lib/io/record_writer.h and tensorflow/core/util/event.proto.
"""

import os
import socket
import struct
import time
from collections.abc import Mapping
from pathlib import Path


def _crc_table() -> tuple[int, ...]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return tuple(table)


_TABLE = _crc_table()


def masked_crc(data: bytes) -> int:
    """Return the masked CRC-32C (Castagnoli) that records carry."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _bytes_field(number: int, data: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(data)) + data


class TensorboardLog:
    """One event file in `folder`."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        name = f"events.out.tfevents.{int(time.time())}.{socket.gethostname()}.{os.getpid()}"
        self._file = (folder / name).open("ab")
        self._record(b"\x09" + struct.pack("<d", time.time()) + _bytes_field(3, b"brain.Event:2"))

    def scalars(self, values: Mapping[str, float], *, step: int) -> None:
        """Append the values of a step and flush."""
        summary = b"".join(
            _bytes_field(1, _bytes_field(1, tag.encode()) + b"\x15" + struct.pack("<f", value))
            for tag, value in values.items()
        )
        head = b"\x09" + struct.pack("<d", time.time()) + b"\x10" + _varint(max(step, 0))
        self._record(head + _bytes_field(5, summary))

    def _record(self, data: bytes) -> None:
        length = struct.pack("<Q", len(data))
        self._file.write(length + struct.pack("<I", masked_crc(length)) + data + struct.pack("<I", masked_crc(data)))
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()
