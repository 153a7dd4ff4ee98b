"""Two captures against each other: which parts explain how much of the difference in step time.

Both are computed per unit: per step, or, where there are none, per window, per second or per token. Each moment of a
step belongs to one item: the kernel that computes (of several the first that began), else a collective, else a copy,
else an idle cause with the operator or range that the leading thread was in; without a device, the innermost operator
of the leading thread. So the items of a side add up to its step time, and their differences to the difference of step
times; what nothing recorded explains stays "unexplained".
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from profiling.analysis.budget import KINDS, kinds_of
from profiling.analysis.intervals import Intervals, covered, interval, joined, owned, partition, total, union
from profiling.analysis.intervals import difference as without
from profiling.analysis.kernels import DeviceSide
from profiling.analysis.nested import Nest
from profiling.analysis.operators import operators
from profiling.analysis.phases import WorkerPhases
from profiling.analysis.stats import sums
from profiling.analysis.work import Events, WorkerEvents
from profiling.evidence import Step
from profiling.trace.category import Category

Change = Literal["added", "removed", "slower", "faster", "same"]
MOST = 100
_SAME = 0.01
"""Less than this share of an item's time is no change worth a word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedCapture:
    """One capture: a worker's events, its steps (at least one) and its phases.

    `host`: when the CPU was in these steps; None where that is when the device was. `units`: how many of what its times
    are told of (seconds, tokens) there are in all steps together; None for the steps themselves.
    """

    work: WorkerEvents
    steps: tuple[Step, ...]
    phases: WorkerPhases = field(default_factory=WorkerPhases)
    host: Intervals | None = None
    units: float | None = None

    @property
    def count(self) -> float:
        """How many units there are."""
        return self.units or len(self.steps)

    @property
    def wall(self) -> float:
        """Mean wall time of a unit. [ns]"""
        return sum(step.end - step.begin for step in self.steps) / self.count

    @property
    def walls(self) -> tuple[int, ...]:
        """How long each of its steps is. [ns]"""
        return tuple(step.end - step.begin for step in self.steps)

    @property
    def whole(self) -> Intervals:
        """All moments of its steps."""
        return joined(*(interval(step.begin, step.end) for step in self.steps))


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """What one kind of work takes in a unit of each side. [ns per unit]

    `kind` is kernel, communication, copy, memset, operator, or an idle cause; `name` which kernel, or, of an idle
    cause, what the CPU was in. `share` is what of the difference in step time it explains; None where steps are equal.
    """

    kind: str
    name: str
    before: float
    after: float
    calls_before: float
    calls_after: float
    share: float | None
    change: Change

    @property
    def delta(self) -> float:
        """How much more the second takes. [ns per unit]"""
        return self.after - self.before


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The second capture against the first. Times in ns per unit.

    `items` are those that explain most, either way; with `unexplained` and `rest` (the items left out) their
    differences add up to `after - before`. `kinds` and `phases` each add up to it, too. `operators` compare the time of
    kernels by the operator that launched them (its own CPU time without a device): they tell where, and may overlap.
    """

    before: float
    after: float
    steps_before: int
    steps_after: int
    items: tuple[Item, ...]
    num_items: int
    rest: float
    unexplained: float
    operators: tuple[Item, ...]
    phases: tuple[Item, ...]
    kinds: tuple[Item, ...]


_Key = tuple[str, str]
_Table = dict[_Key, tuple[float, float]]  # ns and calls


def difference(one: ComparedCapture, other: ComparedCapture) -> Difference:
    """Return what differs from `one` (before) to `other` (after). Raises: ValueError if a side has no step."""
    for side in (one, other):
        if not side.steps:
            raise ValueError("steps: a capture without a whole step cannot be compared.")
    gained = other.wall - one.wall
    items = items_of(shares_of(one), shares_of(other), gained)
    named = [item for item in items if not _is_open(item)]
    return Difference(
        before=one.wall,
        after=other.wall,
        steps_before=len(one.steps),
        steps_after=len(other.steps),
        items=tuple(named[:MOST]),
        num_items=len(named),
        rest=sum(item.delta for item in named[MOST:]),
        unexplained=sum(item.delta for item in items if _is_open(item)),
        operators=tuple(items_of(_operators(one), _operators(other), gained)[:MOST]),
        phases=tuple(items_of(_phases(one), _phases(other), gained)),
        kinds=tuple(items_of(_kinds(one), _kinds(other), gained)),
    )


def _is_open(item: Item) -> bool:
    return item.kind == "not_recorded" or (item.kind == "unattributed" and not item.name)


def items_of(before: _Table, after: _Table, gained: float) -> list[Item]:
    """Return what is in either table, the largest difference first; `gained` is the difference of step times. [ns]"""
    items = []
    for kind, name in sorted({*before, *after}):
        old, new = before.get((kind, name)), after.get((kind, name))
        was, calls_before = old or (0.0, 0.0)
        now, calls_after = new or (0.0, 0.0)
        items.append(
            Item(
                kind=kind,
                name=name,
                before=was,
                after=now,
                calls_before=calls_before,
                calls_after=calls_after,
                share=(now - was) / gained if gained else None,
                change=_change(old is not None, new is not None, was, now),
            )
        )
    return sorted(items, key=lambda item: -abs(item.delta))


def _change(had: bool, has: bool, was: float, now: float) -> Change:
    if not had:
        return "added"
    if not has:
        return "removed"
    if abs(now - was) <= _SAME * max(was, now):
        return "same"
    return "slower" if now > was else "faster"


def shares_of(side: ComparedCapture) -> _Table:
    """Return item -> (ns per unit, calls per unit); the times add up to the mean unit."""
    work, whole = side.work, side.whole
    parts = kinds_of(work, side.phases, whole)
    table: _Table = {}
    hosts = (Nest(work.operators), Nest(work.host.of(Category.RANGE, Category.BATCH)))
    for kind, moments in parts.items():
        if kind == "not_recorded":
            _add(table, (kind, ""), total(moments), 0)
        elif kind == "communication":
            _add_owned(table, work, [work.device, work.host], (Category.COMMUNICATION,), moments, whole)
        elif work.has_device and kind in _ON_DEVICE:
            _add_owned(table, work, [work.device], _ON_DEVICE[kind], moments, whole)
        else:
            _add_innermost(table, "operator" if kind == "compute" else kind, work, hosts, moments)
    if not work.has_device:
        _count(table, work, whole)
    n = side.count
    return {key: (ns / n, calls / n) for key, (ns, calls) in table.items()}


_ON_DEVICE: Mapping[str, tuple[Category, ...]] = {
    "compute": (Category.KERNEL,),
    "copy": (Category.COPY, Category.MEMSET),
}


def _add(table: _Table, key: _Key, ns: float, calls: float) -> None:
    old = table.get(key, (0.0, 0.0))
    table[key] = (old[0] + ns, old[1] + calls)


def _add_owned(
    table: _Table,
    work: WorkerEvents,
    sources: Sequence[Events],
    categories: Sequence[Category],
    moments: Intervals,
    whole: Intervals,
) -> None:
    """Share out moments among events by name: each moment to the event that began first."""
    parts = [source.of(*categories) for source in sources]
    ts, end, name, cat = (
        np.concatenate([getattr(part, column) for part in parts]) for column in ("ts", "end", "name", "cat")
    )
    order = np.argsort(ts, kind="stable")
    ts, end, name, cat = ts[order], end[order], name[order], cat[order]
    own_ns = covered(end - owned(ts, end), end, moments)
    inside = whole.contains(ts)
    ns, calls = sums(name, own_ns), sums(name, inside.astype(np.int64))
    kinds = dict(zip(name.tolist(), cat.tolist(), strict=True))
    for number, own in ns.items():
        if own or calls[number]:
            _add(table, (Category(kinds[number]).name.lower(), work.name(number)), own, calls[number])


def _add_innermost(table: _Table, kind: str, work: WorkerEvents, nests: Sequence[Nest], moments: Intervals) -> None:
    """Share out moments by what the threads were in: operators before ranges, the leading thread first.

    The name is "" where nothing was recorded.
    """
    lead = work.main_lane
    left = moments
    for nest in nests:
        for lane in sorted(np.unique(nest.events.lane).tolist(), key=lambda lane: lane != lead):
            if not len(left):
                return
            begins, ends, rows = nest.pieces(lane, int(left.begin[0]), int(left.end[-1]))
            has_operator = rows >= 0
            begins, ends = begins[has_operator], ends[has_operator]
            for number, ns in sums(nest.events.name[rows[has_operator]], covered(begins, ends, left)).items():
                if ns:
                    _add(table, (kind, work.name(number)), ns, 0)
            left = without(left, union(begins, ends))
    if len(left):
        _add(table, (kind, ""), total(left), 0)


def _count(table: _Table, work: WorkerEvents, whole: Intervals) -> None:
    """Add how often operators were called."""
    operator_events = work.host.of(Category.OPERATOR)
    for number, calls in sums(operator_events.name, whole.contains(operator_events.ts).astype(np.int64)).items():
        if ("operator", work.name(number)) in table:
            _add(table, ("operator", work.name(number)), 0, calls)


def _operators(side: ComparedCapture) -> _Table:
    """Return the kernels' time of each operator per unit, or its own time, where no device was recorded."""
    rows = operators(DeviceSide(side.work, side.whole, side.host), most=_ALL)
    n = side.count
    of_device = side.work.has_device
    return {("operator", one.name): ((one.device if of_device else one.own) / n, one.calls / n) for one in rows}


_ALL = 1 << 30


def _phases(side: ComparedCapture) -> _Table:
    parts = partition(side.whole, side.phases.own.items(), "") if side.phases.own else {}
    return {("phase", key): (total(own) / side.count, 0.0) for key, own in parts.items()}


def _kinds(side: ComparedCapture) -> _Table:
    by_kind = kinds_of(side.work, side.phases, side.whole)
    return {("kind", kind): (total(by_kind[kind]) / side.count, 0.0) for kind in KINDS if kind in by_kind}
