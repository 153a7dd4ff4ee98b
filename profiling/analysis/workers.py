"""Who did the work: one file may hold one worker or several, and one worker may be in several files."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from profiling.analysis.work import WorkerEvents

if TYPE_CHECKING:
    from profiling.trace.store import Store

_PLUMBING = re.compile(r"ray::|(ba|da)?sh$")


def split(work: WorkerEvents) -> tuple[WorkerEvents, ...]:
    """Return the workers of one file: one per process and device, or per process where no device was recorded.

    Of a file of one worker that is itself. The parts of a file that names no worker are numbered.
    """
    streams = [lane for lane in work.lanes.values() if lane.kind == "stream"]
    with_events = set(np.unique(work.device.lane).tolist())
    owners = sorted({(lane.pid, lane.device) for lane in streams if lane.id in with_events})
    if len(owners) > 1:
        return _numbered(work, [_lanes_of(work, pid, device) for pid, device in owners])
    if owners:
        return (work,)
    busy = set(np.unique(work.operators.lane).tolist()) | set(np.unique(work.events.lane).tolist())
    pids = sorted({lane.pid for lane in work.lanes.values() if lane.id in busy and lane.kind == "thread"})
    if len(pids) < 2:
        return (work,)
    return _numbered(work, [[lane.id for lane in work.lanes.values() if lane.pid == pid] for pid in pids])


def _lanes_of(work: WorkerEvents, pid: int, device: int) -> list[int]:
    """Return the streams of a device and the threads that could have launched on it."""
    host_lanes = [lane.id for lane in work.lanes.values() if lane.kind != "stream" and lane.pid == pid]
    streams = [
        lane.id for lane in work.lanes.values() if lane.kind == "stream" and (lane.pid, lane.device) == (pid, device)
    ]
    return [*host_lanes, *streams]


def _numbered(work: WorkerEvents, parts: Iterable[Sequence[int]]) -> tuple[WorkerEvents, ...]:
    return tuple(
        replace(
            work,
            events=work.events.on(lanes),
            lanes={lane: work.lanes[lane] for lane in lanes},
            rank=work.rank if work.role or (not number and work.rank >= 0) else number,
        )
        for number, lanes in enumerate(parts)
    )


def label(work: WorkerEvents) -> str:
    """Return the process and device of a worker, as its lanes tell: "python 4037, device 0".

    What Ray or a shell calls the process of a worker (its newest call, "sh") says nothing of it.
    """
    streams = [lane for lane in work.lanes.values() if lane.kind == "stream"]
    threads = [lane for lane in work.lanes.values() if lane.kind == "thread"]
    first = next(iter(threads or streams), None)
    if first is None:
        return ""
    is_telling = first.process and first.process != str(first.pid) and not _PLUMBING.match(first.process)
    process = first.process if is_telling else "process" if first.pid >= 0 else ""
    parts = [" ".join(part for part in (process, str(first.pid) if first.pid >= 0 else "") if part)]
    devices = sorted({lane.device for lane in streams if lane.device >= 0})
    parts += [f"device {device}" for device in devices]
    return ", ".join(part for part in parts if part)


def device_words(device: int | None, *, whose: str = "") -> str:
    """Return how a sentence calls a device: "device 0 of policy 1", "the device" where its number is not told (-1), and
    "the CPU" for None.
    """
    what = "the CPU" if device is None else f"device {device}" if device >= 0 else "the device"
    return f"{what} of {whose}" if whose else what


def device_name(work: WorkerEvents, store: "Store") -> str:
    """Return what the first device of a worker is called, "" where the trace does not tell."""
    numbers = {work.lanes[lane].device for lane in np.unique(work.device.lane).tolist()}
    described = store.meta.get("devices")
    for about in described if isinstance(described, list) else ():
        if isinstance(about, dict) and about.get("id") in numbers and isinstance(about.get("name"), str):
            return str(about["name"])
    return ""


def best(works: Iterable[WorkerEvents]) -> dict[tuple[str, int], WorkerEvents]:
    """Return one file for each worker: the one with most work of a device, then most events."""
    by_worker: dict[tuple[str, int], WorkerEvents] = {}
    for work in works:
        other = by_worker.get((work.role, work.rank))
        if other is None or _weight(work) > _weight(other):
            by_worker[work.role, work.rank] = work
    return by_worker


def _weight(work: WorkerEvents) -> tuple[int, int]:
    return len(work.device), len(work.events)
