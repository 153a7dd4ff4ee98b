"""Memory over time: what was allocated and reserved, and by category and holder where the source tells."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from profiling.analysis.intervals import Ints
from profiling.analysis.stats import sums

if TYPE_CHECKING:
    from profiling.trace.store import Store

Floats = npt.NDArray[np.float64]

ALLOCATED, RESERVED = "allocated", "reserved"
CATEGORIES = ("weights", "gradients", "optimizer", "activations", "inputs", "temporary", "autograd", "unknown")
ALLOCATIONS = "largest allocations"
"""The lane of a store whose events are allocations, called after the line of code that made them."""
MOST_HOLDERS = 20
_MOST_POINTS = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryCurve:
    """One quantity over time: `points` are (Unix ns, bytes), at most 400 of the `samples`, with every peak kept."""

    name: str
    samples: int
    points: tuple[tuple[int, float], ...]
    peak: float
    peak_at: int
    at_peak: float
    """Bytes when the allocated memory of the device was highest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationSite:
    """The line of code whose allocations held so many bytes, in so many blocks."""

    place: str
    bytes: int
    blocks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryTimeline:
    """Memory of one device (-1: the CPU) in a window. [bytes]

    fragmentation: the share of reserved memory that was not allocated at the peak; None where one of them is not told.
    `peak_at` is 0 where only the state at the end is known, which is told as the peak then. `holders`: who held most at
    the peak where its moment is known (`is_at_peak`), else at the end.
    """

    device: int
    curves: tuple[MemoryCurve, ...]
    peak: float
    peak_at: int
    reserved: float | None
    fragmentation: float | None
    role: str = ""
    rank: int = -1
    holders: tuple[AllocationSite, ...] = ()
    is_at_peak: bool = False


def fragmentation(allocated: float, reserved: float | None) -> float | None:
    """Return the share of reserved memory that is not allocated; None where nothing is reserved."""
    if not reserved or reserved < allocated:
        return None
    return (reserved - allocated) / reserved


def running(deltas: Floats) -> Floats:
    """Return the bytes held after each change [n], given changes in the order of time [n]."""
    return np.cumsum(deltas)


def at(times: Ints, values: Floats, moment: int) -> float:
    """Return the value of a curve of steps at a moment; 0 before its first sample."""
    place = int(np.searchsorted(times, moment, side="right")) - 1
    return float(values[place]) if place >= 0 else 0.0


def thinned(times: Ints, values: Floats, most: int = _MOST_POINTS) -> tuple[tuple[int, float], ...]:
    """Return at most `most` points of a curve: of each stretch its least and its greatest value, in order."""
    n = len(times)
    if n <= most:
        return tuple(zip(times.tolist(), values.tolist(), strict=True))
    bounds = np.linspace(0, n, most // 2 + 1).astype(np.int64)
    chosen: set[int] = set()
    for a, b in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        chosen.update((a + int(values[a:b].argmin()), a + int(values[a:b].argmax())))
    rows = sorted(chosen)
    return tuple(zip(times[rows].tolist(), values[rows].tolist(), strict=True))


def memory_of(curves: Mapping[str, tuple[Ints, Floats]], device: int) -> MemoryTimeline | None:
    """Return the memory of one device by its curves, each (times [n], bytes [n]); None if none has a sample.

    The peak is that of "allocated", or of all others but "reserved" together, where that is not told.
    """
    filled = {name: curve for name, curve in curves.items() if len(curve[0])}
    if not filled:
        return None
    times, values = filled.get(ALLOCATED) or _sum({name: own for name, own in filled.items() if name != RESERVED})
    if not len(times):
        times, values = filled[RESERVED]
    highest = int(values.argmax())
    peak, peak_at = float(values[highest]), int(times[highest])
    reserved = at(*filled[RESERVED], peak_at) if RESERVED in filled else None
    order = {name: i for i, name in enumerate((ALLOCATED, RESERVED, *CATEGORIES))}
    return MemoryTimeline(
        device=device,
        curves=tuple(
            MemoryCurve(
                name=name,
                samples=len(own[0]),
                points=thinned(*own),
                peak=float(own[1].max()),
                peak_at=int(own[0][int(own[1].argmax())]),
                at_peak=at(*own, peak_at),
            )
            for name, own in sorted(filled.items(), key=lambda item: (order.get(item[0], len(order)), item[0]))
        ),
        peak=peak,
        peak_at=peak_at,
        reserved=reserved,
        fragmentation=fragmentation(peak, reserved),
    )


def _sum(curves: Mapping[str, tuple[Ints, Floats]]) -> tuple[Ints, Floats]:
    """Return the sum of curves of steps."""
    if not curves:
        return np.empty(0, np.int64), np.empty(0)
    times = np.unique(np.concatenate([times for times, _ in curves.values()]))
    whole = np.zeros(len(times))
    for own_times, own in curves.values():
        place = np.searchsorted(own_times, times, side="right") - 1
        whole += np.where(place >= 0, own[np.maximum(place, 0)], 0.0)
    return times, whole


def memory(store: "Store", begin: int, end: int, *, role: str = "", rank: int = -1) -> tuple[MemoryTimeline, ...]:
    """Return the memory that a store tells of in [begin, end), by device and process, as that of `role` and `rank`."""
    curves: dict[tuple[int, str], dict[str, tuple[Ints, Floats]]] = {}
    for series in store.series:
        if series.unit == "B" and (series.name in (ALLOCATED, RESERVED) or series.name in CATEGORIES):
            own = curves.setdefault((series.device, series.process), {})
            own[series.name] = store.samples(series.id, begin=begin, end=end)
    states = _states(store)
    with_curves = {device for device, _ in curves}
    timelines = []
    for device, process in sorted({*curves, *((device, "") for device in states if device not in with_curves)}):
        one = memory_of(curves.get((device, process), {}), device) or _at_end(states.get(device, (0, 0)), device)
        if one is not None:
            held = _held_at(store, device, one.peak_at) if one.peak_at else ()
            holders = held or _holders(store)
            timelines.append(replace(one, role=role, rank=rank, holders=holders, is_at_peak=bool(held)))
    return tuple(timelines)


def _states(store: "Store") -> dict[int, tuple[int, int]]:
    """Return what a store says was allocated and reserved at the end, by device. [bytes]"""
    by_device = {}
    for each in _listed(store, "memory"):
        match each:
            case {"device": int(device), "allocated": int(allocated), "reserved": int(reserved)}:
                by_device[device] = (allocated, reserved)
    return by_device


def _holders(store: "Store") -> tuple[AllocationSite, ...]:
    """Return who a store says held most at the end."""
    sites = []
    for each in _listed(store, "holders"):
        match each:
            case {"place": place, "bytes": int(size), "blocks": int(blocks)}:
                sites.append(AllocationSite(place=str(place), bytes=size, blocks=blocks))
    return tuple(sites[:MOST_HOLDERS])


def _listed(store: "Store", key: str) -> Sequence[object]:
    value = store.meta.get(key)
    return value if isinstance(value, list) else ()


def _at_end(state: tuple[int, int], device: int) -> MemoryTimeline | None:
    """Return the memory of a device of which only the last state is known."""
    allocated, reserved = state
    if not reserved:
        return None
    return MemoryTimeline(
        device=device,
        curves=(),
        peak=allocated,
        peak_at=0,
        reserved=reserved,
        fragmentation=fragmentation(allocated, reserved),
    )


def _held_at(store: "Store", device: int, moment: int) -> tuple[AllocationSite, ...]:
    """Return the places whose allocations were held at a moment, of those that the store has as spans."""
    lanes = [lane.id for lane in store.lanes if lane.device == device and lane.title == ALLOCATIONS]
    if not lanes:
        return ()
    rows = store.events(lanes=lanes, begin=moment, end=moment + 1, columns=("name", "bytes"))
    sizes, counts = sums(rows["name"], rows["bytes"]), sums(rows["name"], np.ones(len(rows["name"]), np.int64))
    best = sorted(sizes, key=lambda name: -sizes[name])[:MOST_HOLDERS]
    return tuple(AllocationSite(place=store.names[name], bytes=sizes[name], blocks=counts[name]) for name in best)
