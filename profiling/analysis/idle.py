"""Where a device does nothing, and why: each idle moment has one cause.

The causes claim in the order of CAUSES, so that a moment at which several hold counts for the one that explains more.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from profiling.analysis.intervals import Claim, Intervals, Ints, covered, difference, joined, partition
from profiling.analysis.nested import Nest
from profiling.analysis.phases import WorkerPhases
from profiling.analysis.work import Events, WorkerEvents
from profiling.trace.category import Category

CAUSES = ("profiler", "collector", "data_wait", "synchronisation", "launch", "waiting", "unattributed")
"""profiler: its own work. collector: Python's garbage collector. data_wait: the data loader. synchronisation: the CPU
waits for the device. launch: the CPU prepares work (an operator or a call of the device's interface). waiting: the
worker is in no phase while another one is. unattributed: nothing was recorded then."""

LEAST = 1_000_000
"""Shorter gaps are not listed one by one. [ns]"""

OF_PROGRAM = re.compile(r"command buffer full|(?:lazy )?function loading|module loading|jit compiler", re.I)
"""What tools call overhead although the program pays for it without them, too: launches that wait for room in the
queue, code that is loaded or compiled by the driver."""
_LOADER = re.compile(r"dataloader|data_wait|next\(.*loader", re.I)
_WAITS = re.compile(r"synchronize|streamwait|eventwait", re.I)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """An idle stretch of a device, in Unix ns.

    `cause` is that of most of it; `inside` names the CPU's innermost range or operator in the middle of it, "" where
    nothing was recorded; `phase` is the worker's phase there, "" outside of all.
    """

    begin: int
    end: int
    cause: str
    inside: str
    phase: str


def claims(work: WorkerEvents, phases: WorkerPhases) -> list[Claim]:
    """Return what claims an idle moment of a worker's device, the first claim counting most."""
    host = work.host
    loader = [i for i, name in enumerate(work.names) if _LOADER.search(name)]
    calls = host.of(Category.RUNTIME)
    waits = [i for i, name in enumerate(work.names) if _WAITS.search(name)]
    loading = host.of(Category.RANGE, Category.OPERATOR)
    ordered = [
        ("profiler", work.events.of(Category.OVERHEAD).union),
        ("collector", host.of(Category.COLLECTOR).union),
        ("data_wait", joined(_named(loading, loader).union, *_phase(phases, "data_wait"))),
        ("synchronisation", joined(host.of(Category.SYNC).union, _named(calls, waits).union)),
    ]
    if work.has_device:  # else an operator is the work itself
        ordered.append(("launch", host.of(Category.OPERATOR, Category.RUNTIME, Category.BATCH).union))
    return [*ordered, ("waiting", phases.other_workers)]


def _named(events: Events, names: Sequence[int]) -> Events:
    return events.take(np.isin(events.name, names))


def _phase(phases: WorkerPhases, key: str) -> list[Intervals]:
    return [phases.own[key]] if key in phases.own else []


def idle_by_cause(work: WorkerEvents, phases: WorkerPhases, within: Intervals) -> dict[str, Intervals]:
    """Return the idle ones of some recorded moments by cause; they make up all of them exactly."""
    return partition(difference(within, work.busy), claims(work, phases), "unattributed")


def longest_gaps(
    work: WorkerEvents, phases: WorkerPhases, within: Intervals, *, least: int = LEAST, most: int = 20
) -> tuple[Gap, ...]:
    """Return the longest idle gaps of at least `least` ns in some recorded moments, the longest first."""
    idle = difference(within, work.busy)
    rows = np.flatnonzero(idle.lengths >= least)
    rows = rows[np.argsort(-idle.lengths[rows], kind="stable")][:most]
    if not len(rows):
        return ()
    starts, ends = idle.begin[rows], idle.end[rows]
    causes = idle_by_cause(work, phases, within)
    shares = {key: covered(starts, ends, of_cause) for key, of_cause in causes.items()}
    middle = (starts + ends) // 2
    inside = _innermost(work, middle, ends)
    return tuple(
        Gap(
            begin=int(starts[i]),
            end=int(ends[i]),
            cause=max(shares, key=lambda key: int(shares[key][i])),
            inside=inside[i],
            phase=next((key for key, own in phases.own.items() if bool(own.contains(middle[i : i + 1])[0])), ""),
        )
        for i in range(len(rows))
    )


def _innermost(work: WorkerEvents, moments: Ints, ends: Ints) -> list[str]:
    """Return what the thread that launched the next work was in at each moment; else any thread's, "" for none."""
    nest = Nest(work.host.of(Category.RANGE, Category.OPERATOR, Category.RUNTIME, Category.SYNC, Category.BATCH))
    launches = work.host.of(Category.RUNTIME)
    lanes = np.full(len(moments), main_lane(work), np.int64)
    links = {link: i for i, link in enumerate(launches.link.tolist()) if link}
    for i, end in enumerate(ends.tolist()):
        next_up = work.device.link[work.device.ts == end]
        launched_by = links.get(int(next_up[0])) if len(next_up) else None
        if launched_by is not None:
            lanes[i] = launches.lane[launched_by]
    rows = nest.innermost(lanes, moments)
    for lane in np.unique(nest.events.lane).tolist():
        open_rows = np.flatnonzero(rows < 0)
        rows[open_rows] = nest.innermost(np.full(len(open_rows), lane, np.int64), moments[open_rows])
    return [work.name(int(nest.events.name[row])) if row >= 0 else "" for row in rows.tolist()]


def main_lane(work: WorkerEvents) -> int:
    """Return the thread that leads: the one with the steps, else with most calls of the device, else most operators."""
    for categories in ((Category.STEP,), (Category.RUNTIME,), (Category.OPERATOR, Category.RANGE)):
        host_events = work.host.of(*categories)
        if len(host_events):
            lanes, counts = np.unique(host_events.lane, return_counts=True)
            return int(lanes[counts.argmax()])
    return -1
