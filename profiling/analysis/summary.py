"""One entry to it all: what a trace holds in a window, as plain data that JSON can carry."""

import bisect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from profiling.analysis.budget import Budget, budget
from profiling.analysis.communication import Communication, Late, communication, stragglers
from profiling.analysis.flops import FlopCount, count_store
from profiling.analysis.frames import FrameTime
from profiling.analysis.idle import Gap, functions_of, idle_by_cause, longest_gaps
from profiling.analysis.intervals import Intervals, clipped, intersection, interval, joined, total
from profiling.analysis.kernels import Copies, DeviceSide, Kernel, Launches
from profiling.analysis.memory import MemoryTimeline, memory
from profiling.analysis.operators import Operator, operators, ranges
from profiling.analysis.outside import Outside, outside_of
from profiling.analysis.phases import WorkerPhases, phases_of
from profiling.analysis.rollout import RolloutSummary, rollout
from profiling.analysis.stretches import By, Source, Stretches, stretches_of
from profiling.analysis.work import WorkerEvents, read
from profiling.analysis.workers import best, device_name, label, split
from profiling.evidence import PhaseSpans, RecordedTrace, Step

if TYPE_CHECKING:
    from profiling.trace.store import Store

MOST_EVENTS = 1_000_000
"""Events that are looked at, over all files; of a longer trace its first steps."""
MOST_RULED = 10_000_000
"""Events that rules look at, over all files: they read columns of few kinds; of a longer trace what begins first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSummary:
    """What one worker did in the window. Times in ns. `has_work`: its trace says when it computed or communicated; else
    there are ranges alone, and neither `busy` nor `idle` mean anything.

    `busy` is how long its device did anything (its CPU, where no device was recorded), `idle` the rest of what
    was recorded by cause, `device_by_phase` when kernels were launched, `outside` what the steps do not hold. None:
    nothing of the kind was recorded.
    """

    role: str
    rank: int
    label: str
    device_name: str
    has_device: bool
    has_work: bool
    recorded: int
    busy: int
    operators: tuple[Operator, ...]
    ranges: tuple[Operator, ...]
    kernels: tuple[Kernel, ...]
    copies: tuple[Copies, ...]
    launches: Launches | None
    communication: Communication | None
    device_by_phase: dict[str, int]
    idle: dict[str, int]
    gaps: tuple[Gap, ...]
    rollout: RolloutSummary | None
    flops: FlopCount | None
    outside: Outside | None = None
    python: tuple[FrameTime, ...] = ()
    """Functions of the program behind idle time, the longest first."""
    has_stacks: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSummary:
    """A window of a trace, in Unix ns. `events` are those in it; `is_cut`: there were too many, so that of the window
    up to `asked_end` only the part up to `end` is used.

    `steps` of the budget lie whole in the window, and `source` says where they are from; without steps the window
    counts as one, numbered -1. Without a clock (`has_clock`) there is no budget, and of workers only how long things
    ran is told.
    """

    begin: int
    end: int
    asked_end: int
    events: int
    is_cut: bool
    source: Source
    budget: Budget
    workers: tuple[WorkerSummary, ...]
    late: tuple[Late, ...]
    memory: tuple[MemoryTimeline, ...]
    has_clock: bool = True

    @property
    def has_steps(self) -> bool:
        """Return False where the window counts as one step."""
        return self.source != "window"

    @property
    def numbers(self) -> list[int]:
        """Numbers of the steps, as the run counts them; [] where the steps are none of a run's."""
        return [step.number for step in self.budget.steps] if self.source in ("phases", "marks") else []


def summarise(
    recorded: Sequence[RecordedTrace],
    spans: PhaseSpans,
    window: tuple[int, int] | None = None,
    *,
    drop_first: bool = False,
    by: By = "steps",
    most_events: int = MOST_EVENTS,
) -> TraceSummary:
    """Return what was recorded in a window, by default in all of the recording.

    `recorded` are the files with the worker each is of; a file of several workers is split. `drop_first` leaves out the
    first step, if there are others: it often pays for warming up. `by` window: the window counts as one, whatever
    steps there are. Of files without a clock the lengths are told, and only where there are no others.
    """
    opened = _opened(recorded, spans, window, by=by, most_events=most_events)
    stretches, works, has_clock = opened.stretches, opened.works, opened.has_clock
    steps = stretches.steps[1:] if drop_first and len(stretches.steps) > 1 else stretches.steps
    begin, until = min([opened.begin, *(one.begin for one in steps)]), max([opened.end, *(one.end for one in steps)])
    whole = joined(*(interval(step.begin, step.end) for step in steps))
    workers = [
        replace(
            _worker(work, phases_of(spans, role=key[0], rank=key[1], work=work), whole, host, opened.stores[key]),
            outside=outside_of(work, stretches.by_worker.get(key), whole, begin, until)
            if stretches.has_steps
            else None,
        )
        for key, work in sorted(works.items())
        for host in [stretches.on_host(key, steps)]
    ]
    first, last = (int(whole.begin[0]), int(whole.end[-1])) if len(whole) else (begin, until)
    return TraceSummary(
        begin=begin,
        end=until,
        asked_end=max(opened.asked_end, until),
        events=opened.events,
        is_cut=opened.is_cut,
        source=stretches.source,
        budget=budget(works, spans, steps if has_clock else ()),
        workers=tuple(workers if has_clock else map(_lengths, workers)),
        memory=tuple(
            timeline
            for one in opened.recorded
            for timeline in memory(one.store, begin, until + 1, role=one.role, rank=_rank(one))
        ),
        late=stragglers([work for _, work in sorted(works.items())], first, last) if has_clock else (),
        has_clock=has_clock,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedTrace:
    """The workers of some files by role and rank, the stores that they are from, and what their numbers are of.

    All of [begin, end) in Unix ns; `is_cut`: there are too many `events` in the window up to `asked_end`. `recorded`
    are the files that are on one clock, or all of them where none has a clock.
    """

    works: Mapping[tuple[str, int], WorkerEvents]
    stores: Mapping[tuple[str, int], "Store"]
    stretches: Stretches
    recorded: Sequence[RecordedTrace]
    begin: int
    end: int
    asked_end: int
    events: int
    is_cut: bool
    has_clock: bool


def open_trace(
    recorded: Sequence[RecordedTrace],
    spans: PhaseSpans,
    window: tuple[int, int] | None = None,
    *,
    by: By = "steps",
    most_events: int = MOST_EVENTS,
) -> OpenedTrace:
    """Return the workers of some files in a window (by default in all of the recording) with their steps.

    Without any step the window counts as one. Files without a clock have no workers here.
    """
    opened = _opened(recorded, spans, window, by=by, most_events=most_events)
    return opened if opened.has_clock else replace(opened, works={}, stores={})


def _opened(
    recorded: Sequence[RecordedTrace],
    spans: PhaseSpans,
    window: tuple[int, int] | None,
    *,
    by: By,
    most_events: int,
) -> OpenedTrace:
    recorded, has_clock = _on_one_clock(recorded)
    begin, end = window or _recorded_window(recorded, spans)
    events = sum(_count(one, begin, end) for one in recorded)
    until = end if events <= most_events else affordable(recorded, begin, end, most_events)
    works, stores = _open(recorded, begin, until)
    by = by if has_clock else "window"  # of what is laid one after another no order repeats
    stretches = stretches_of(spans, works, stores, begin, until, is_whole=window is None and until == end, by=by)
    launched = min((int(host.begin[0]) for host in map(stretches.on_host, works) if host), default=begin)
    if launched < begin:  # before the window, by a CPU that ran ahead
        works, stores = _open(recorded, launched, until)
    return OpenedTrace(
        works=works,
        stores=stores,
        stretches=stretches,
        recorded=recorded,
        begin=begin,
        end=until,
        asked_end=end,
        events=events,
        is_cut=until < end,
        has_clock=has_clock,
    )


def open_works(
    recorded: Sequence[RecordedTrace], spans: PhaseSpans, *, most_events: int = MOST_EVENTS
) -> tuple[Mapping[tuple[str, int], WorkerEvents], tuple[Step, ...], bool]:
    """Return the workers of some files, the steps of which they tell (() for none), and whether there are too many
    events, so that both are of the first of them only.
    """
    opened = open_trace(recorded, spans, most_events=most_events)
    return opened.works, opened.stretches.steps if opened.stretches.has_steps else (), opened.is_cut


def _on_one_clock(recorded: Sequence[RecordedTrace]) -> tuple[Sequence[RecordedTrace], bool]:
    """Return the files whose times can be compared, and whether they can; all files where none of them has a clock."""
    timed = [one for one in recorded if one.has_clock]
    return (timed, True) if timed or not recorded else (recorded, False)


def _lengths(worker: WorkerSummary) -> WorkerSummary:
    """Return what remains of a worker where nothing is known of the time between its events."""
    return replace(worker, recorded=0, busy=0, launches=None, communication=None, idle={}, gaps=(), python=())


def _open(
    recorded: Sequence[RecordedTrace], begin: int, end: int
) -> tuple[dict[tuple[str, int], WorkerEvents], dict[tuple[str, int], "Store"]]:
    """Return each worker's events in a window and the store that they are from."""
    works, stores = [], []
    for one in recorded:
        for work in split(read(one.store, role=one.role, rank=_rank(one), begin=begin, end=end)):
            if len(work.host) or len(work.device):
                works.append(work)
                stores.append(one.store)
    works = _distinct(works, [store.meta.get("source") for store in stores])
    chosen = best(works)
    store_of = {id(work): store for work, store in zip(works, stores, strict=True)}
    return chosen, {key: store_of[id(work)] for key, work in chosen.items()}


def _recorded_window(recorded: Sequence[RecordedTrace], spans: PhaseSpans) -> tuple[int, int]:
    """Return the first and the last moment of the programs in the files; of the phases where there are no files."""
    if recorded:
        begins, ends = zip(*(one.store.program for one in recorded), strict=True)
        return min(begins), max(ends)
    if len(spans):
        return int(spans.start.min()), int((spans.start + spans.duration).max())
    return 0, 0


def _count(one: RecordedTrace, begin: int, end: int) -> int:
    rows = one.store.sql("SELECT count(*) AS n FROM ev WHERE ts < ? AND ts + dur > ?", [end, begin])
    return int(rows["n"][0])


def affordable(recorded: Sequence[RecordedTrace], begin: int, end: int, most: int) -> int:
    """Return the latest end, in 64ths of the window, before which at most so many events begin; at least one 64th."""

    def held(part: int) -> int:
        return sum(_count(one, begin, begin + (end - begin) * part // 64) for one in recorded)

    part = bisect.bisect_right(range(1, 64), most, key=held)  # longer windows hold more
    return begin + max((end - begin) * max(part, 1) // 64, 1)


def within(recorded: Sequence[RecordedTrace], most: int = MOST_RULED) -> tuple[RecordedTrace, ...]:
    """Return the files, looked at only so far that at most so many events begin in all of them together."""
    if not recorded:
        return ()
    begin, end = min(one.store.begin for one in recorded), max(one.store.end for one in recorded)
    if sum(_count(one, begin, end) for one in recorded) <= most:
        return tuple(recorded)
    until = affordable(recorded, begin, end, most)
    return tuple(replace(one, until=until) for one in recorded)


def _rank(one: RecordedTrace) -> int:
    """Return the rank that a file is of; that which it tells of itself where nobody else knows."""
    rank = one.store.meta.get("rank")
    return one.rank if one.rank >= 0 or not isinstance(rank, int) else rank


def _distinct(works: Sequence[WorkerEvents], sources: Sequence[object]) -> list[WorkerEvents]:
    """Give workers numbers of their own where files name none, or where a role has several processes.

    Two files of one worker stay one worker: they are of different tools, or of the same process.
    """
    taken: dict[tuple[str, int], tuple[object, set[int]]] = {}
    named = []
    for work, source in zip(works, sources, strict=True):
        role, rank, pids = work.role, work.rank, {lane.pid for lane in work.lanes.values() if lane.kind == "thread"}
        if not role:
            rank = max(rank, 0)
            while ("", rank) in taken:
                rank += 1
        part = 0
        while (role, rank) in taken and taken[role, rank][0] == source and not taken[role, rank][1] & pids:
            part += 1
            role = f"{work.role}/{part}"
        taken.setdefault((role, rank), (source, pids))
        named.append(replace(work, role=role, rank=rank))
    return named


def _worker(
    work: WorkerEvents, phases: WorkerPhases, whole: Intervals, host: Intervals | None, store: "Store"
) -> WorkerSummary:
    begin, end = (int(whole.begin[0]), int(whole.end[-1])) if len(whole) else (0, 0)
    seen = clipped(whole, work.begin, work.end)
    side = DeviceSide(work, whole, host)
    parts = idle_by_cause(work, phases, seen) if work.tells_work else {}
    rollouts = phases.own.get("rollout")
    shapes = count_store(store, *((int(side.host.begin[0]), int(side.host.end[-1])) if len(side.host) else (0, 0)))
    return WorkerSummary(
        role=work.role,
        rank=work.rank,
        label=label(work),
        device_name=device_name(work, store),
        has_device=work.has_device,
        has_work=work.tells_work,
        recorded=total(seen),
        busy=total(intersection(work.busy, seen)),
        operators=operators(side),
        ranges=ranges(side),
        kernels=side.kernels(),
        copies=side.copies(),
        launches=side.launches() if work.has_device else None,
        communication=communication(work, begin, end) if len(work.collectives) else None,
        device_by_phase=side.by_phase(phases.own) if work.has_device and phases.own else {},
        idle={cause: total(gaps) for cause, gaps in parts.items()},
        gaps=longest_gaps(work, phases, seen) if work.tells_work else (),
        rollout=rollout(work, _pairs(rollouts, whole), begin, end),
        flops=shapes if shapes.with_shapes or shapes.without_shapes else None,
        python=functions_of("python", parts, work),
        has_stacks=work.has_stacks,
    )


def _pairs(rollouts: Intervals | None, whole: Intervals) -> list[tuple[int, int]]:
    if rollouts is None:
        return []
    inside = intersection(rollouts, whole)
    return list(zip(inside.begin.tolist(), inside.end.tolist(), strict=True))
