"""Bytes of NCCL's calls in an export of Nsight Systems: what NCCL attaches to its NVTX ranges.

NVTX_PAYLOAD_SCHEMAS and its entries describe a structure of C; `binaryData` of a range holds a head of four 64-bit
numbers (domain, schema, bytes of the structure, where it begins) and then the structure, little-endian. That is how
exports of 2025 and 2026 have it; older versions of nsys record no such payloads.

A call of a collective launches its kernel at once, or, within a group, in the ncclGroupEnd that follows.
"""

import bisect
import re
import struct
from collections import Counter
from typing import Any

from profiling.trace.formats.sqlite_tables import Tables

_HEAD = struct.Struct("<4Q")
_SIZE = re.compile(r"message size|^bytes$", re.I)
_SIZE_TYPES = frozenset({8, 10, 18, 22})
"""unsigned long, unsigned long long, uint64, size_t; each of 8 bytes."""
_GROUP_END = "ncclGroupEnd"
_MOST = 2_000_000

Call = tuple[int, int, int]
"""Begin, end and bytes of a call, on the clock of the session."""


class Payloads:
    """What NCCL's calls say of their bytes, and which launch they belong to."""

    def __init__(self, tables: Tables) -> None:
        self._offsets: dict[tuple[Any, Any], int] = {}
        columns = ("domainId", "schemaId", "type", "name", "offset")
        for domain, schema, kind, name, offset in tables.rows("NVTX_PAYLOAD_SCHEMA_ENTRIES", *columns):
            if kind in _SIZE_TYPES and isinstance(name, str) and _SIZE.search(name):
                self._offsets[domain, schema] = offset if isinstance(offset, int) else 0  # the first one has none
        self._calls: dict[int, list[Call]] = {}
        self._ends: dict[int, list[Call]] = {}
        self._count = 0
        self._of: dict[int, tuple[int, int]] = {}  # links, by thread and begin of the call
        self._sizes: dict[tuple[int, int], int] = {}
        self._launches: Counter[tuple[int, int]] = Counter()

    @property
    def are_there(self) -> bool:
        """Return True if any range may tell of bytes."""
        return bool(self._offsets)

    def add(self, tid: int, start: Any, end: Any, name: str, domain: Any, data: Any) -> int:
        """Keep a range of a thread if it is one of NCCL's, and return its bytes; 0 if it does not tell of any."""
        if not isinstance(start, int) or not isinstance(end, int) or self._count >= _MOST:
            return 0
        if name == _GROUP_END:
            self._ends.setdefault(tid, []).append((start, end, 0))
            self._count += 1
            return 0
        size = self._bytes(domain, data)
        if size:
            self._calls.setdefault(tid, []).append((start, end, size))
            self._count += 1
        return size

    def close(self) -> None:
        """All ranges are here: add up what each end of a group sends."""
        for calls in self._calls.values():
            calls.sort()
        for tid, ends in self._ends.items():
            ends.sort()
            calls = self._calls.get(tid, [])
            at = 0
            for i, (start, end, _) in enumerate(ends):
                first = at
                while at < len(calls) and calls[at][0] <= start:
                    at += 1
                ends[i] = (start, end, sum(size for _, _, size in calls[first:at]))

    def launched(self, tid: Any, start: Any, name: str, link: int) -> None:
        """A call of the CUDA interface: if it launches within one of NCCL's calls, it sends that one's bytes."""
        if not link or "Launch" not in name or not isinstance(start, int):
            return
        for calls in (self._calls.get(tid), self._ends.get(tid)):
            if calls:
                at = bisect.bisect_right(calls, (start, 1 << 63, 0)) - 1
                if at >= 0 and calls[at][1] >= start and calls[at][2]:
                    self._of[link] = (tid, calls[at][0])
                    self._launches[tid, calls[at][0]] += 1
                    self._sizes[tid, calls[at][0]] = calls[at][2]
                    return

    def sent(self, link: int) -> int:
        """Return the bytes of the call that launched a kernel; 0 if it is not known, or launched several."""
        key = self._of.get(link)
        return self._sizes[key] if key is not None and self._launches[key] == 1 else 0

    def _bytes(self, domain: Any, data: Any) -> int:
        if isinstance(data, str):
            try:
                data = bytes.fromhex(data)
            except ValueError:
                return 0
        if not isinstance(data, bytes) or len(data) < _HEAD.size:
            return 0
        _, schema, size, _ = _HEAD.unpack_from(data)
        offset = self._offsets.get((domain, schema), -1)
        if not 0 <= offset <= size - 8 or size > len(data) - _HEAD.size:
            return 0
        num_bytes = int.from_bytes(data[_HEAD.size + offset : _HEAD.size + offset + 8], "little")
        return num_bytes if num_bytes < 1 << 62 else 0
