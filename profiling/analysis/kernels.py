"""Kernels and copies: which take longest, what launched them, and how they lie behind their launches.

A kernel belongs to the call that launched it by their common link, and to the innermost operator or range that is under
way on that thread at the launch. Where the launch was not recorded, the operator's own number on the kernel is used.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from profiling.analysis.intervals import Intervals, Ints, covered, owned, total, union
from profiling.analysis.nested import Nest
from profiling.analysis.stats import Groups, grouped, percentile, sums
from profiling.analysis.work import Events, WorkerEvents
from profiling.trace.category import Category
from profiling.trace.launches import launch_names

MOST = 50
UNKNOWN = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """All runs of one kernel, copy or collective. Times in ns.

    `own` is what of the device's busy time belongs to it alone: each moment to the kernel that began first, so that
    `own` of all adds up to the busy time. `operator` is the one that launched most of its time, "" where not known.
    """

    name: str
    category: str
    calls: int
    total: int
    own: int
    mean: float
    p50: int
    p99: int
    least: int
    most: int
    operator: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Copies:
    """Copies of one kind, or settings of memory. `bytes` 0 where the tool does not tell."""

    kind: str
    calls: int
    total: int
    bytes: int

    @property
    def rate(self) -> float | None:
        """Bytes per second while they ran; None where it is not known."""
        return self.bytes / (self.total / 1e9) if self.bytes and self.total else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Launches:
    """How kernels lie behind the calls that launched them. Times in ns; shares of the `linked` kernels.

    short: kernels that run shorter than their own launch call took. delay: from the end of the call to the start of the
    kernel, negative where the kernel began before the call returned.
    """

    kernels: int
    linked: int
    short_share: float | None
    median_kernel: int | None
    delay_p50: int | None
    delay_p99: int | None
    launch_p50: int | None


class DeviceSide:
    """The device events of a worker that begin within some moments, with what launched them.

    `host`: the moments of the same steps on the CPU, which runs ahead of the device; by default they are the same.
    """

    def __init__(self, work: WorkerEvents, within: Intervals, host: Intervals | None = None) -> None:
        self.work = work
        self.host = within if host is None else host
        device = work.device
        inside = device.take(within.contains(device.ts))
        self.events = inside.take(np.argsort(inside.ts, kind="stable"))

    @cached_property
    def launch(self) -> Ints:
        """The row of the launching call in `calls` [n], -1 where it was not recorded.

        Of several calls with one number the one that is called like a launch.
        """
        calls = self.calls
        order = np.lexsort((~np.isin(calls.name, launch_names(self.work.names)), calls.link))
        links = calls.link[order]
        at = np.searchsorted(links, self.events.link)
        is_linked = (at < len(links)) & (self.events.link != 0)
        is_linked[is_linked] = links[at[is_linked]] == self.events.link[is_linked]
        rows = np.full(len(self.events), UNKNOWN, np.int64)
        rows[is_linked] = order[at[is_linked]]
        return rows

    @cached_property
    def calls(self) -> Events:
        """Calls of the device's interface, on all threads."""
        return self.work.calls

    @cached_property
    def operator_nest(self) -> Nest:
        """The nesting of operators alone."""
        return Nest(self.work.host.of(Category.OPERATOR))

    @cached_property
    def operator(self) -> Ints:
        """The row of the operator in `operator_nest.events` that each belongs to [n]; -1 for none."""
        rows = self._enclosing(self.operator_nest)
        operators = self.operator_nest.events
        if (operators.outer > 0).any():
            has_operators = np.isin(self.calls.lane[self.launch] if len(self.calls) else self.launch, operators.lane)
            is_told = (self.launch >= 0) & has_operators  # a launch outside all operators of its thread has none
            open_rows = np.flatnonzero((rows < 0) & ~is_told & (self.events.outer > 0))
            order = np.argsort(operators.outer, kind="stable")
            numbers = operators.outer[order]
            at = np.searchsorted(numbers, self.events.outer[open_rows])
            is_linked = at < len(numbers)
            is_linked[is_linked] = numbers[at[is_linked]] == self.events.outer[open_rows][is_linked]
            rows[open_rows[is_linked]] = order[at[is_linked]]
        return rows

    @cached_property
    def range_nest(self) -> Nest:
        """The nesting of named ranges and phases."""
        return Nest(self.work.host.of(Category.RANGE, Category.PHASE))

    @cached_property
    def range(self) -> Ints:
        """The row of the innermost range in `range_nest.events` around the launch of each [n]; -1 for none."""
        return self._enclosing(self.range_nest)

    def by_phase(self, phases: Mapping[str, Intervals]) -> dict[str, int]:
        """Return device time by the phase in which it was launched (ran, where the launch is not known). [ns]"""
        launched = self.launch >= 0
        when = np.where(launched, self.calls.ts[self.launch] if len(self.calls) else 0, self.events.ts)
        phase_ns = {key: int(self.events.dur[own.contains(when)].sum()) for key, own in phases.items()}
        rest = int(self.events.dur.sum()) - sum(phase_ns.values())
        return {key: ns for key, ns in {**phase_ns, "": rest}.items() if ns}

    def _enclosing(self, nest: Nest) -> Ints:
        rows = np.full(len(self.events), UNKNOWN, np.int64)
        launched = np.flatnonzero(self.launch >= 0)
        calls = self.launch[launched]
        rows[launched] = nest.innermost(self.calls.lane[calls], self.calls.ts[calls])
        return rows

    @cached_property
    def own(self) -> Ints:
        """What of the busy time is each one's own [n]. [ns]"""
        return owned(self.events.ts, self.events.end)

    def kernels(self, most: int = MOST) -> tuple[Kernel, ...]:
        """Return kernels, collectives and copies by name, those with most time first."""
        groups = grouped(self.events.name, self.events.dur)
        own = sums(self.events.name, self.own)
        best = np.argsort(-groups.total, kind="stable")[:most]
        return tuple(self._kernel(groups, int(i), own) for i in best)

    def _kernel(self, groups: Groups, i: int, own: Mapping[int, int]) -> Kernel:
        number = int(groups.keys[i])
        rows = np.flatnonzero(self.events.name == number)
        operators = self.operator[rows]
        names = np.where(
            operators >= 0, self.operator_nest.events.name[operators] if len(self.operator_nest.events) else 0, -1
        )
        share = sums(names, self.events.dur[rows])
        top = max(share, key=lambda key: (share[key], key))
        return Kernel(
            name=self.work.name(number),
            category=Category(int(self.events.cat[rows[0]])).name.lower(),
            calls=int(groups.count[i]),
            total=int(groups.total[i]),
            own=own[number],
            mean=float(groups.total[i] / groups.count[i]),
            p50=int(groups.p50[i]),
            p99=int(groups.p99[i]),
            least=int(groups.least[i]),
            most=int(groups.most[i]),
            operator=self.work.name(top) if top >= 0 else "",
        )

    def copies(self) -> tuple[Copies, ...]:
        """Return copies by kind ("Memcpy HtoD (Pageable -> Device)", as the tool calls them), longest first."""
        moved = self.events.of(Category.COPY, Category.MEMSET)
        groups, size = grouped(moved.name, moved.dur), sums(moved.name, moved.bytes)
        unsorted = [
            Copies(kind=self.work.name(name), calls=calls, total=ns, bytes=size[name])
            for name, calls, ns in zip(groups.keys.tolist(), groups.count.tolist(), groups.total.tolist(), strict=True)
        ]
        return tuple(sorted(unsorted, key=lambda one: -one.total))

    def launches(self) -> Launches:
        """Return how kernels lie behind their launches."""
        kernels = np.isin(self.events.cat, [int(Category.KERNEL), int(Category.COMMUNICATION)])
        linked = np.flatnonzero(kernels & (self.launch >= 0))
        calls = self.launch[linked]
        lengths = self.events.dur[linked]
        call_lengths = self.calls.dur[calls]
        delay = self.events.ts[linked] - self.calls.end[calls]
        return Launches(
            kernels=int(kernels.sum()),
            linked=len(linked),
            short_share=float((lengths < call_lengths).mean()) if len(linked) else None,
            median_kernel=percentile(self.events.dur[kernels], 50),
            delay_p50=percentile(delay, 50),
            delay_p99=percentile(delay, 99),
            launch_p50=percentile(call_lengths, 50),
        )

    def exposed(self, category: Category) -> int:
        """Return how long work of a category ran while no kernel computed. [ns]"""
        own_events = self.events.of(category)
        compute = self.events.of(Category.KERNEL).union
        busy = union(own_events.ts, own_events.end)
        return total(busy) - int(covered(busy.begin, busy.end, compute).sum())
