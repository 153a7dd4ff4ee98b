"""Which phase each worker is in, as sets of moments."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from profiling.analysis.intervals import EMPTY, Intervals, difference, interval, joined, partition, union
from profiling.analysis.work import WorkerEvents
from profiling.evidence import PhaseSpans
from profiling.phases import PHASES
from profiling.trace.category import Category

_ORDER = {phase.key: i for i, phase in enumerate(PHASES)}
CONTROLLER = "driver"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerPhases:
    """A worker's own phases, each moment in one of them at most, and when only others have one.

    `other_workers` is empty for a worker that never told a phase: it is not known then what it waited for.
    """

    own: Mapping[str, Intervals] = field(default_factory=dict)
    other_workers: Intervals = EMPTY

    @property
    def any(self) -> Intervals:
        """All moments in a phase of its own."""
        return joined(*self.own.values())


def by_phase(spans: PhaseSpans) -> dict[str, Intervals]:
    """Return the moments of each phase (details of phases are no phases), in the order of a step; they may overlap."""
    outer = spans.take(spans.depth == 0)
    keys = sorted(set(outer.phase.tolist()), key=lambda key: (_ORDER.get(key, len(_ORDER)), key))
    intervals = {}
    for key in keys:
        rows = outer.phase == key
        intervals[key] = union(outer.start[rows], (outer.start + outer.duration)[rows])
    return intervals


def disjoint(phases: Mapping[str, Intervals]) -> dict[str, Intervals]:
    """Return the phases with each moment in one of them: where several are under way, in the first of a step."""
    whole = joined(*phases.values())
    return {key: own for key, own in partition(whole, phases.items(), "").items() if key}


def phases_of(spans: PhaseSpans, *, role: str, rank: int, work: WorkerEvents | None = None) -> WorkerPhases:
    """Return the phases of a worker: its spans, or, where there are none, ranges of phases in its trace."""
    role = role.partition("/")[0]  # one process of several
    own_spans = (
        spans.take((spans.role == role) & (spans.rank == rank)) if role else spans.take(np.zeros(len(spans), bool))
    )
    own = by_phase(own_spans)
    if not own and work is not None:
        own = _in_trace(work)
    if not own:
        return WorkerPhases()
    outer = spans.take(spans.depth == 0)
    others = union(outer.start, outer.start + outer.duration)
    shared = disjoint(own)
    return WorkerPhases(own=shared, other_workers=difference(others, joined(*shared.values())))


def _in_trace(work: WorkerEvents) -> dict[str, Intervals]:
    marks = work.events.of(Category.PHASE)
    intervals = {}
    for number in np.unique(marks.name).tolist():
        rows = marks.take(marks.name == number)
        intervals[work.name(number)] = rows.union
    return dict(sorted(intervals.items(), key=lambda item: (_ORDER.get(item[0], len(_ORDER)), item[0])))


def last_in(spans: PhaseSpans, phase: str, begin: int, end: int) -> tuple[str, int] | None:
    """Return who of the workers ends a phase last within [begin, end): the one that the step waits for."""
    until = np.minimum(spans.start + spans.duration, end)
    rows = np.flatnonzero(
        (spans.phase == phase) & (spans.depth == 0) & (spans.role != CONTROLLER) & (spans.start < end) & (until > begin)
    )
    if not len(rows):
        return None
    longest = np.lexsort((spans.duration[rows], until[rows]))[-1]
    return str(spans.role[rows[longest]]), int(spans.rank[rows[longest]])


def moments(spans: PhaseSpans, role: str, rank: int, phase: str) -> Intervals:
    """Return when a worker is in a phase."""
    rows = (spans.role == role) & (spans.rank == rank) & (spans.phase == phase) & (spans.depth == 0)
    return union(spans.start[rows], (spans.start + spans.duration)[rows])


def window_of(sets: Sequence[Intervals]) -> Intervals:
    """Return the one interval from the first to the last moment of some sets."""
    begins = [int(one.begin[0]) for one in sets if len(one)]
    ends = [int(one.end[-1]) for one in sets if len(one)]
    return interval(min(begins), max(ends)) if begins else EMPTY
