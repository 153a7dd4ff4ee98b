"""Where a device does nothing, and why: each idle moment has one cause.

The causes claim in the order of CAUSES, so that a moment at which several hold counts for the one that explains more.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from profiling.analysis.frames import FrameTime
from profiling.analysis.intervals import EMPTY, Claim, Intervals, Ints, covered, difference, joined, partition, union
from profiling.analysis.nested import Nest
from profiling.analysis.phases import WorkerPhases
from profiling.analysis.work import AWAITS, LONG, Events, WorkerEvents
from profiling.trace.category import Category
from profiling.trace.names import numbers_of

CAUSES = (
    "dependency",
    "profiler",
    "collector",
    "data_wait",
    "capture",
    "synchronisation",
    "launch",
    "communication",
    "python",
    "system",
    "waiting",
    "program",
    "native",
    "off_cpu",
    "unattributed",
)
"""dependency: the next work was launched before the gap began, and the device waited for another stream or an event (as
HTA tells it from waiting for the host). In all others the CPU was late. profiler: its own work. collector: Python's
garbage collector. data_wait: the data loader. capture: launches are put into a graph, to run when that is launched, or
the graph is made ready. synchronisation: the CPU waits for the device. launch: the CPU prepares
work (an operator, a call of the device's interface, less than 1 ms between two calls, or else whatever range covers the
moment). communication: the CPU is in a collective. python: it is in a function of the program, in a gap of 1 ms or
more. system: it is in a call of the operating system (a file, a lock, another thread). waiting: the worker is in no
phase while another one is. program, only without a device: the CPU is between two operators less than 1 ms apart, or in
a range. native: a thread that launches ran on a CPU, as scheduling or samples tell, in what nothing else names.
off_cpu: it had none: it slept, or waited for one. unattributed: nothing was recorded then."""

LEAST = LONG
"""Shorter gaps are not listed one by one. [ns]"""

OF_PROGRAM = re.compile(r"command buffer full|(?:lazy )?function loading|module loading|jit compiler", re.I)
"""What tools call overhead although the program pays for it without them, too: launches that wait for room in the
queue, code that is loaded or compiled by the driver."""
_LOADER = re.compile(r"dataloader|data_wait|next\(.*loader", re.I)
_WAITS = re.compile(r"synchronize|streamwait|eventwait", re.I)
_BEGINS_CAPTURE = re.compile(r"StreamBeginCapture")
_ENDS_CAPTURE = re.compile(r"StreamEndCapture")
_MAKES_READY = re.compile(r"Graph(?:Instantiate|Upload)")
_NAMED = (
    Category.RANGE, Category.OPERATOR, Category.RUNTIME, Category.SYNC, Category.BATCH, Category.PYTHON,
    Category.SYSTEM,
)  # fmt: skip
_CALLS = (Category.RUNTIME, Category.SYNC, Category.OPERATOR, Category.BATCH, Category.COMMUNICATION, Category.SYSTEM)
"""Between two of them that follow each other soon the CPU is at work on the next one."""
_MEETS = re.compile(r"barrier|^gloo:|^mpi:|_object_list", re.I)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """An idle stretch of a device, in Unix ns.

    `cause` is that of most of it; `inside` names the CPU's innermost range or operator in the middle of it, for
    `python` the function in which most of it lay (`module:function:line`), for `native` the one in which samples saw
    it most, "" where nothing was recorded; `phase` is the worker's phase there, "" outside of all.
    """

    begin: int
    end: int
    cause: str
    inside: str
    phase: str


def claims(work: WorkerEvents, phases: WorkerPhases) -> list[Claim]:
    """Return what claims an idle moment of a worker's device, the first claim counting most."""
    host, lead = work.host, work.leading
    inside = lead.of(Category.RANGE, Category.OPERATOR)
    queued, late = _by_launch(work)
    overhead = work.events.of(Category.OVERHEAD)
    is_program = np.isin(overhead.name, numbers_of(work.names, OF_PROGRAM))
    ordered = [
        ("dependency", queued),
        ("profiler", overhead.take(~is_program).union),
        ("collector", host.of(Category.COLLECTOR).union),
        ("data_wait", joined(work.called(_LOADER, inside).union, *_phase(phases, "data_wait"))),
        ("capture", _captures(work)),
        ("synchronisation", joined(lead.of(Category.SYNC).union, work.called(_WAITS, lead.of(Category.RUNTIME)).union)),
        ("communication", joined(host.of(Category.COMMUNICATION).union, work.called(_MEETS, inside).union)),
    ]
    if work.has_device:  # else an operator is the work itself
        preparing = lead.of(Category.OPERATOR, Category.RUNTIME, Category.BATCH).union
        ordered.append(("launch", joined(preparing, overhead.take(is_program).union)))
        # whichever thread waits for a result: while another one prepares work, it is that one that is late
        ordered.append(("synchronisation", work.called(AWAITS, host).union))
    ordered += [
        ("python", work.long_frames.union),
        ("launch", late),
        ("system", lead.of(Category.SYSTEM).union),
        ("waiting", phases.other_workers),
    ]
    # what is left: the CPU was late, and calls on both sides, or a range, tell where it was
    covering = host.of(Category.RANGE, Category.BATCH, Category.OPERATOR, Category.RUNTIME)
    ordered.append(("launch" if work.has_device else "program", joined(_pauses(lead.of(*_CALLS)), covering.union)))
    on_cpu, off_cpu = work.scheduled
    # a sample stands until the next one, but scheduling knows when its thread was taken off the CPU
    ordered += [("native", on_cpu), ("off_cpu", off_cpu), ("native", work.long_samples.union)]
    return ordered


def _captures(work: WorkerEvents) -> Intervals:
    """Return when threads put launches into a graph (CUDA's or HIP's), and made graphs ready."""
    calls = work.host.of(Category.RUNTIME, Category.SYNC)
    begins, ends = work.called(_BEGINS_CAPTURE, calls), work.called(_ENDS_CAPTURE, calls)
    ends_of = {lane: np.sort(ends.on([lane]).end) for lane in np.unique(begins.lane).tolist()}
    first, last = [], []
    for lane, begin in zip(begins.lane.tolist(), begins.ts.tolist(), strict=True):
        at = int(np.searchsorted(ends_of[lane], begin))
        if at < len(ends_of[lane]):
            first.append(begin)
            last.append(int(ends_of[lane][at]))
    ready = work.called(_MAKES_READY, calls).union
    return joined(union(np.array(first, np.int64), np.array(last, np.int64)), ready)


def _pauses(calls: Events) -> Intervals:
    """Return the times between two calls of a thread that are shorter than LEAST."""
    begins, ends = [], []
    for lane in np.unique(calls.lane).tolist():
        own = calls.lane == lane
        until = np.maximum.accumulate(calls.end[own])[:-1]
        after = calls.ts[own][1:]
        keep = (after > until) & (after - until < LEAST)
        begins.append(until[keep])
        ends.append(after[keep])
    return union(np.concatenate(begins), np.concatenate(ends)) if begins else EMPTY


def _by_launch(work: WorkerEvents) -> tuple[Intervals, Intervals]:
    """Return gaps before work whose launching call had returned when they began, and short ones before any other work
    that is linked with its launch.
    """
    device, calls, busy = work.device, work.calls, work.busy
    if len(busy) < 2 or not len(calls):
        return EMPTY, EMPTY
    order = np.argsort(calls.link, kind="stable")
    links, ends = calls.link[order], calls.end[order]
    at = np.searchsorted(links, device.link).clip(0, len(links) - 1)
    linked = (links[at] == device.link) & (device.link > 0)
    starts, launched = device.ts[linked], ends[at[linked]]
    order = np.lexsort((launched, starts))  # of work that begins together, what was launched first
    begin, end = busy.end[:-1], busy.begin[1:]
    row = np.searchsorted(starts[order], end)
    is_linked = row < len(order)
    is_linked[is_linked] = starts[order][row[is_linked]] == end[is_linked]
    is_queued = is_linked.copy()
    is_queued[is_linked] = launched[order][row[is_linked]] <= begin[is_linked]
    is_late = is_linked & ~is_queued & (end - begin < LEAST)
    return Intervals(begin[is_queued], end[is_queued]), Intervals(begin[is_late], end[is_late])


def _phase(phases: WorkerPhases, key: str) -> list[Intervals]:
    return [phases.own[key]] if key in phases.own else []


def idle_by_cause(work: WorkerEvents, phases: WorkerPhases, within: Intervals) -> dict[str, Intervals]:
    """Return the idle ones of some recorded moments by cause; they make up all of them exactly."""
    return partition(difference(within, work.busy), claims(work, phases), "unattributed")


def functions_of(cause: str, causes: Mapping[str, Intervals], work: WorkerEvents) -> tuple[FrameTime, ...]:
    """Return the functions behind idle time of a cause, by their time in it: of `python` the program's own frames, of
    `native` what samples saw.
    """
    frames = work.long_samples if cause == "native" else work.long_frames
    return frames.within(causes[cause]) if cause in causes else ()


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
    mostly = [max(shares, key=lambda key: int(shares[key][i])) for i in range(len(rows))]
    for i, cause in enumerate(mostly):
        if cause == "python":
            inside[i] = work.long_frames.named(int(starts[i]), int(ends[i]))
        elif cause == "native":
            inside[i] = work.long_samples.named(int(starts[i]), int(ends[i])) or inside[i]
    return tuple(
        Gap(
            begin=int(starts[i]),
            end=int(ends[i]),
            cause=mostly[i],
            inside=inside[i],
            phase=next((key for key, own in phases.own.items() if bool(own.contains(middle[i : i + 1])[0])), ""),
        )
        for i in range(len(rows))
    )


def _innermost(work: WorkerEvents, moments: Ints, ends: Ints) -> list[str]:
    """Return what the thread that launched the next work was in at each moment; else any thread's, "" for none.

    Of frames only those that wait for the device are there, of the system's calls those of threads that launch.
    """
    host = work.host.of(*_NAMED)
    is_others = (host.cat == Category.SYSTEM) & ~np.isin(host.lane, work.leading.lane)
    nest = Nest(host.take(~is_others))
    launches = work.calls
    lanes = np.full(len(moments), work.main_lane, np.int64)
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
