"""Operators: how often each is called, how long it takes, and how long the kernels run that it launches."""

from dataclasses import dataclass

import numpy as np

from profiling.analysis.intervals import Ints
from profiling.analysis.kernels import DeviceSide
from profiling.analysis.nested import Nest
from profiling.analysis.stats import grouped, sums

MOST = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """All calls of one operator. Times in ns.

    total: from its start to its end on the CPU. own: without the operators it calls. device: kernels and copies that it
    launches itself. device_total: also those that operators inside it launch. An operator inside one of the same name
    counts in both.
    """

    name: str
    calls: int
    total: int
    own: int
    mean: float
    p50: int
    p99: int
    device: int
    device_total: int


def operators(side: DeviceSide, most: int = MOST) -> tuple[Operator, ...]:
    """Return the operators that begin in its moments of the CPU, by the time of their kernels, then by their own."""
    by_name = _by_name(side, side.operator_nest, side.operator)
    return tuple(sorted(by_name, key=lambda one: (-one.device, -one.own, one.name))[:most])


def ranges(side: DeviceSide, most: int = MOST) -> tuple[Operator, ...]:
    """Return the ranges and phases that begin in its moments of the CPU, longest first, told as operators are."""
    by_name = _by_name(side, side.range_nest, side.range)
    return tuple(sorted(by_name, key=lambda one: (-one.total, one.name))[:most])


def _by_name(side: DeviceSide, nest: Nest, launcher: Ints) -> list[Operator]:
    """Return the events of a nest by name; `launcher` is the row that each event of the device belongs to [n]."""
    events = nest.events
    device = np.zeros(len(events), np.int64)
    has_launcher = launcher >= 0
    np.add.at(device, launcher[has_launcher], side.events.dur[has_launcher])
    whole = _with_children(device, nest.parents, nest.depth)
    inside = np.flatnonzero(side.host.contains(events.ts))
    names = events.name[inside]
    groups = grouped(names, events.dur[inside])
    own, launched, below = (sums(names, values[inside]) for values in (nest.own, device, whole))
    return [
        Operator(
            name=side.work.name(name),
            calls=calls,
            total=ns,
            own=own[name],
            mean=ns / calls,
            p50=p50,
            p99=p99,
            device=launched[name],
            device_total=below[name],
        )
        for name, calls, ns, p50, p99 in zip(
            groups.keys.tolist(),
            groups.count.tolist(),
            groups.total.tolist(),
            groups.p50.tolist(),
            groups.p99.tolist(),
            strict=True,
        )
    ]


def _with_children(values: Ints, parents: Ints, depth: Ints) -> Ints:
    """Return each value with those of everything below it [n]."""
    whole = values.copy()
    for level in range(int(depth.max()) if len(depth) else 0, 0, -1):
        rows = np.flatnonzero((depth == level) & (parents >= 0))
        np.add.at(whole, parents[rows], whole[rows])
    return whole
