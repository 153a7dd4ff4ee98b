"""Collectives: how long, how many bytes, how much of it is hidden by compute, and who came late."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from profiling.analysis.intervals import Ints, covered, difference, interval, joined, total
from profiling.analysis.stats import percentile
from profiling.analysis.work import Events, WorkerEvents
from profiling.trace.category import Category

_DEVICE_NAME = re.compile(
    r"(?:nccl|rccl|hccl)(?:Dev)?Kernel_(AllReduce|AllGather|ReduceScatter|Broadcast|Reduce|SendRecv|AllToAll)", re.I
)
_CPU_NAME = re.compile(r"^(?:nccl|gloo|mpi|hccl):(.+)$", re.I)


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """All runs of one collective on one worker. Times in ns; `bytes` 0 where the tool does not tell.

    exposed: while nothing computed. Collectives that overlap each other count it twice.
    """

    name: str
    calls: int
    total: int
    exposed: int
    p50: int
    p99: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Communication:
    """Communication of one worker within a window. Times in ns; exposed and overlapped make up busy.

    is_same_stream: collectives share a stream with kernels, so that they cannot overlap; None without a device.
    """

    busy: int
    exposed: int
    overlapped: int
    is_same_stream: bool | None
    collectives: tuple[Collective, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Late:
    """How late a worker entered the collectives that all have in common. Times in ns after the first to enter."""

    role: str
    rank: int
    last: int
    of: int
    median: int
    total: int


def plain_name(name: str) -> str:
    """Return what a collective is called: "AllReduce" of "ncclDevKernel_AllReduce_Sum_f32_RING_LL"."""
    match = _DEVICE_NAME.search(name)
    if match:
        return match[1]
    match = _CPU_NAME.match(name)
    return match[1] if match else name


def communication(work: WorkerEvents, begin: int, end: int) -> Communication:
    """Return the communication of a worker that begins in [begin, end)."""
    events = _inside(work.collectives, begin, end)
    window = interval(begin, end)
    busy = joined(events.union)
    exposed = difference(busy, work.compute)
    alone = events.dur - covered(events.ts, events.end, work.compute)
    return Communication(
        busy=total(busy),
        exposed=total(exposed),
        overlapped=total(busy) - total(exposed),
        is_same_stream=_shares_stream(work, begin, end) if work.has_device and len(window) else None,
        collectives=tuple(_by_name(work, events, alone)),
    )


def _inside(events: Events, begin: int, end: int) -> Events:
    return events.take((events.ts >= begin) & (events.ts < end))


def _shares_stream(work: WorkerEvents, begin: int, end: int) -> bool | None:
    device = _inside(work.device, begin, end)
    communicating = set(device.of(Category.COMMUNICATION).lane.tolist())
    if not communicating:
        return None
    return bool(communicating & set(device.of(Category.KERNEL).lane.tolist()))


def _by_name(work: WorkerEvents, events: Events, exposed: Ints) -> list[Collective]:
    names = np.array([plain_name(work.name(number)) for number in events.name.tolist()], object)
    collectives = []
    for name in sorted(set(names.tolist())):
        rows = np.flatnonzero(names == name)
        durations = events.dur[rows]
        collectives.append(
            Collective(
                name=name,
                calls=len(rows),
                total=int(durations.sum()),
                exposed=int(exposed[rows].sum()),
                p50=percentile(durations, 50) or 0,
                p99=percentile(durations, 99) or 0,
                bytes=int(events.bytes[rows].sum()),
            )
        )
    return sorted(collectives, key=lambda one: -one.total)


def stragglers(works: Sequence[WorkerEvents], begin: int, end: int) -> tuple[Late, ...]:
    """Return how late each worker enters the collectives that begin in [begin, end), the latest first.

    The k-th collective of a name is the same one on all workers; names of which they have different numbers are left
    out, since nothing tells which is which. () with fewer than two workers or nothing in common.
    """
    if len(works) < 2:
        return ()
    starts = [_starts(work, begin, end) for work in works]
    common = [
        name for name in starts[0] if all(name in own and len(own[name]) == len(starts[0][name]) for own in starts[1:])
    ]
    if not common:
        return ()
    table = np.concatenate([np.stack([own[name] for own in starts]) for name in common], axis=1)  # [worker, collective]
    lateness = table - table.min(axis=0)
    last = table.argmax(axis=0)
    late = [
        Late(
            role=work.role,
            rank=work.rank,
            last=int((last == i).sum()),
            of=table.shape[1],
            median=percentile(lateness[i], 50) or 0,
            total=int(lateness[i].sum()),
        )
        for i, work in enumerate(works)
    ]
    return tuple(sorted(late, key=lambda one: (-one.last, -one.total)))


def _starts(work: WorkerEvents, begin: int, end: int) -> Mapping[str, Ints]:
    events = _inside(work.collectives, begin, end)
    names = np.array([plain_name(work.name(number)) for number in events.name.tolist()], object)
    return {name: np.sort(events.ts[names == name]) for name in sorted(set(names.tolist()))}
