"""What the cause of a failed run says of memory: of which it ran out, whose, and the bytes that its message tells."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from profiling.phases import BY_KEY, PHASES

Memory = Literal["device", "host"]

_CACHE = re.compile(r"No available memory for the cache blocks|larger than the available KV cache memory")
_DEVICE = re.compile(r"out of device memory|(?:CUDA|HIP) out of memory|torch\.(?:cuda\.)?OutOfMemoryError|cache blocks")
_HOST = re.compile(
    r"out of host memory|ran out of memory|low on memory|exceeds the memory usage threshold|out-of-memory killer"
    r"|Cannot allocate memory|can.t allocate memory|Unable to allocate|MemoryError|std::bad_alloc"
)
_UNITS = {"": 1, "bytes": 1, "B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40, "GB": 10**9}
_SIZE = r"(\d+(?:\.\d+)?)\s?(TiB|GiB|MiB|KiB|GB|bytes|B)\b"
_SIZES: Mapping[str, re.Pattern[str]] = {
    "wanted": re.compile(rf"(?:[Tt]ried to allocate|Unable to allocate) {_SIZE}"),
    "total": re.compile(rf"total capacity of {_SIZE}"),
    "free": re.compile(rf"of which {_SIZE} is free"),
    "in_use": re.compile(rf"this process has {_SIZE} memory in use"),
    "allocated": re.compile(rf"{_SIZE} is allocated by PyTorch"),
    "unallocated": re.compile(rf"{_SIZE} is reserved by PyTorch but unallocated"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryFailure:
    """Who ran out of which memory. `phase`: a key of profiling.phases, "" where it is not told. The others are bytes
    that torch or the kernel told (torch/cuda, CUDACachingAllocator), None where they did not: what was asked for at the
    end, of a device that has `total` and `free`, by a process with `in_use`, of which torch gave `allocated` away and
    kept `unallocated`."""

    memory: Memory
    role: str
    rank: int
    phase: str
    is_cache: bool = False
    wanted: int | None = None
    total: int | None = None
    free: int | None = None
    in_use: int | None = None
    allocated: int | None = None
    unallocated: int | None = None

    @property
    def demanded(self) -> int | None:
        """Bytes of the device that would have been taken with the last allocation; None where that is not told."""
        if self.wanted is None or self.total is None or self.free is None:
            return None
        return self.total - self.free + self.wanted


def memory_failure(cause: Mapping[str, Any]) -> MemoryFailure | None:
    """Return what a cause says of memory; None for a run that did not die of it."""
    said = f"{cause.get('text') or ''} {cause.get('log_line') or ''}"
    is_device = _DEVICE.search(said) is not None
    if not is_device and _HOST.search(said) is None:
        return None
    sizes = {name: _size(pattern, said) for name, pattern in _SIZES.items()}
    is_cache = _CACHE.search(said) is not None
    role = str(cause.get("role") or "")
    rank = cause.get("rank")
    return MemoryFailure(
        memory="device" if is_device or is_cache else "host",
        role="vllm" if is_cache else "" if role == "driver" else role,
        rank=rank if isinstance(rank, int) else 0,
        phase="rollout" if is_cache else _phase(cause, said),
        is_cache=is_cache,
        **sizes,
    )


def _phase(cause: Mapping[str, Any], said: str) -> str:
    """Return the phase that the engine names; of older runs it stands in the sentence: "at step 4 (update)"."""
    if (key := cause.get("phase")) in BY_KEY:
        return str(key)
    return next((phase.key for phase in PHASES if f"({phase.label.lower()})" in said), "")


def _size(pattern: re.Pattern[str], text: str) -> int | None:
    match = pattern.search(text)
    return None if match is None else round(float(match[1]) * _UNITS[match[2]])
