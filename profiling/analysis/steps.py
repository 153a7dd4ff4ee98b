"""Where the marked steps of a worker begin and end: a step lasts until the last device work that it launched is done.

The CPU runs ahead of the device, by several steps where kernels are long. So what runs while the CPU is in step k may
be work of step k - 1, and the host's range says nothing of the device. The rule is that of TensorBoard's torch profiler
plugin (`event_parser.py`, StepParser), with every call that begins in a step counted for it.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from profiling.analysis.intervals import Bools, Ints
from profiling.evidence import Step
from profiling.trace.category import DEVICE, Category
from profiling.trace.launches import launch_names

if TYPE_CHECKING:
    from profiling.trace.store import Lane, Store

CUT = 0.8
"""A last step with less than this share of the operations of the one before was cut: the profiler stopped first."""
UNKNOWN, BEHIND = -1, -2

_NUMBER = re.compile(r"(\d+)\D*$")


@dataclass(frozen=True, slots=True)
class LaunchedWork:
    """Operations of a worker's device, all [n], by begin: from `begin` to `end`, launched by a call that began at
    `call` (UNKNOWN: it was not recorded; BEHIND: nor was it, but the stream had launched work before). Unix ns.
    """

    begin: Ints
    end: Ints
    call: Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSteps:
    """The marked steps of one worker, oldest first; times in ns.

    steps     each until the last device work that it launched has ended, none beginning before the one before ended
    host      what the CPU needed: the marks themselves, of the same numbers
    dropped   numbers of marks at the end whose device work the recording does not hold
    before    operations that were launched before the first mark, or by a call that was not recorded before any work of
              their stream that was launched, and their time; 0 where no launch was recorded at all: the steps are the
              marks then
    """

    steps: tuple[Step, ...] = ()
    host: tuple[Step, ...] = ()
    dropped: tuple[int, ...] = ()
    before: int = 0
    before_ns: int = 0


def worker_steps(store: "Store", lanes: Iterable["Lane"]) -> WorkerSteps:
    """Return the steps of the worker that has these lanes of a store, over all of the recording."""
    own_lanes = tuple(lanes)
    hosts = _marks(store, own_lanes)
    return steps_by_launch(hosts, launched_work(store, own_lanes)) if hosts else WorkerSteps()


def launched_work(store: "Store", lanes: Sequence["Lane"]) -> LaunchedWork:
    """Return what ran on the streams among the lanes, with when the threads among them launched it.

    A stream works in the order of launches: what comes behind launched work was not launched before that.
    """
    rows = store.sql(
        "SELECT d.ts AS begun, d.ts + d.dur AS ended, coalesce(c.at, CASE WHEN count(c.at) OVER (PARTITION BY d.lane "
        "ORDER BY d.ts, d.dur, d.rowid) > 0 THEN $behind ELSE $unknown END) AS called FROM ev d LEFT JOIN ("
        "SELECT link, coalesce(min(ts) FILTER (WHERE list_contains($named, name)), min(ts)) AS at FROM ev "
        "WHERE (cat = $calls OR cat = $waits AND list_contains($named, name)) AND link != 0 "
        "AND list_contains($threads, lane) GROUP BY link) c ON c.link = d.link "
        "WHERE list_contains($streams, d.lane) AND list_contains($device, d.cat) ORDER BY d.ts, d.dur, d.rowid",
        {
            "unknown": UNKNOWN,
            "behind": BEHIND,
            "named": launch_names(store.names),
            "calls": int(Category.RUNTIME),
            "waits": int(Category.SYNC),  # a copy that waits for its end launches it, too
            "threads": [lane.id for lane in lanes if lane.kind == "thread"],
            "streams": [lane.id for lane in lanes if lane.kind == "stream"],
            "device": [int(one) for one in DEVICE],
        },
    )
    return LaunchedWork(*(rows[key].astype(np.int64, copy=False) for key in ("begun", "ended", "called")))


def _marks(store: "Store", lanes: Sequence["Lane"]) -> tuple[Step, ...]:
    rows = store.sql(
        "SELECT n.text AS name, e.ts AS begun, e.ts + e.dur AS ended FROM ev e JOIN names n ON n.id = e.name "
        "WHERE e.cat = ? AND list_contains(?, e.lane)",
        [int(Category.STEP), [lane.id for lane in lanes if lane.kind != "stream"]],
    )
    return host_steps(zip(rows["name"].tolist(), rows["begun"].tolist(), rows["ended"].tolist(), strict=True))


def host_steps(marks: Iterable[tuple[str, int, int]]) -> tuple[Step, ...]:
    """Return the ranges (name, begin, end) of steps by begin, those of one number joined, none overlapping another."""
    bounds: dict[int, tuple[int, int]] = {}
    for name, begin, end in marks:
        number = number_of(name)
        if number is not None:
            first, last = bounds.get(number, (begin, end))
            bounds[number] = (min(first, begin), max(last, end))
    return _in_a_row((number, first, last) for number, (first, last) in bounds.items())


def _in_a_row(bounds: Iterable[tuple[int, int, int]]) -> tuple[Step, ...]:
    """Return steps of (number, begin, end) by begin; what overlaps the one before begins later."""
    steps: list[Step] = []
    for number, first, last in sorted(bounds, key=lambda one: one[1:]):
        first = max(first, steps[-1].end) if steps else first
        if last > first:
            steps.append(Step(number=number, begin=first, end=last))
    return tuple(steps)


def number_of(name: str) -> int | None:
    """Return the step that a range is called after: 1009 for "ProfilerStep#1009"; None if it names none."""
    match = _NUMBER.search(name)
    return int(match[1]) if match and len(match[1]) < 19 else None


def steps_by_launch(hosts: Sequence[Step], work: LaunchedWork) -> WorkerSteps:
    """Return the steps of a worker from the host's ranges, which do not overlap, and its device's work.

    With L_k the operations whose launching call began in range k = [h_k, e_k): step k ends at t_k, the latest of e_k
    and the ends in L_k; step k + 1 begins at the later of t_k and h_(k+1), the first one when the work that was on the
    device before is done. A step that is over before it could begin has no length and is left out.
    """
    begins = np.array([step.begin for step in hosts], np.int64)
    ends = np.array([step.end for step in hosts], np.int64)
    place = np.searchsorted(begins, work.call, side="right") - 1
    is_inside = (work.call >= 0) & (place >= 0) & (work.call < ends[place])
    early = (work.call != BEHIND) & (work.call < begins[0])
    if not (work.call >= 0).any():
        return WorkerSteps(steps=tuple(hosts), host=tuple(hosts))
    before, before_ns = int(early.sum()), int((work.end - work.begin)[early].sum())
    if not is_inside.any():
        return WorkerSteps(steps=tuple(hosts), host=tuple(hosts), before=before, before_ns=before_ns)
    counts = np.bincount(place[is_inside], minlength=len(hosts))
    num_whole = _recorded_whole(counts)
    until = ends.copy()
    np.maximum.at(until, place[is_inside], work.end[is_inside])
    at = _first_begin(work, is_inside, is_inside & (place == 0), int(begins[0]))
    steps = []
    for host, end in zip(hosts[:num_whole], until[:num_whole].tolist(), strict=True):
        begin = max(at, host.begin)
        at = max(begin, end)
        if end > begin:
            steps.append(Step(number=host.number, begin=begin, end=end))
    numbers = {step.number for step in steps}
    return WorkerSteps(
        steps=tuple(steps),
        host=tuple(host for host in hosts if host.number in numbers),
        dropped=tuple(host.number for host in hosts[num_whole:]),
        before=before,
        before_ns=before_ns,
    )


def _first_begin(work: LaunchedWork, is_inside: Bools, of_first: Bools, begun: int) -> int:
    """Return when the first step begins: once that is done which no step launched and which ended before its own."""
    if not of_first.any():
        return begun
    first = int(work.begin[of_first].min())
    earlier = work.end[~is_inside & (work.end <= first)]
    return max(begun, int(earlier.max(initial=begun)))


def _recorded_whole(counts: Ints) -> int:
    """Return how many of the steps, by their numbers of operations, were recorded to their end."""
    num_whole = int(np.flatnonzero(counts)[-1]) + 1
    is_cut = num_whole > 1 and counts[num_whole - 1] < CUT * counts[num_whole - 2]
    return num_whole - 1 if is_cut else num_whole


def across(workers: Iterable[WorkerSteps]) -> tuple[Step, ...]:
    """Return the steps of all workers together: from the first that begins one to the last that ends it.

    What the recording of one of them cut off is no whole step of all.
    """
    bounds: dict[int, tuple[int, int]] = {}
    dropped: set[int] = set()
    for worker in workers:
        dropped.update(worker.dropped)
        for step in worker.steps:
            first, last = bounds.get(step.number, (step.begin, step.end))
            bounds[step.number] = (min(first, step.begin), max(last, step.end))
    return _in_a_row((number, first, last) for number, (first, last) in bounds.items() if number not in dropped)
