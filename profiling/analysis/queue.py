"""Curves that a trace does not hold but implies: queue depth of streams, bandwidth of copies, utilisation of devices.

As Holistic Trace Analysis computes the first two. Queue depth: one more at the begin of a call whose work on the stream
was recorded, one less where that work begins; at its ceiling (about a thousand on CUDA) launches block, at 0 the device
waits for the CPU. Bandwidth: bytes / duration of each copy while it runs, added up; a length of 0 counts as 1 us.
Utilisation: the share of each bin of 1 ms (of a thousandth of the window, if that is longer) with work on the device.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from profiling.analysis.intervals import Ints, covered, union
from profiling.analysis.too_many import TooManyEvents
from profiling.trace.category import DEVICE, Category
from profiling.trace.store import Store

Kind = Literal["queue", "bandwidth", "utilisation"]
Floats = npt.NDArray[np.float64]

LEAST_BIN = 1_000_000
_BINS = 1_000
_MOST_EVENTS = 4_000_000
_DEVICE = [int(one) for one in DEVICE]


@dataclass(frozen=True, slots=True, kw_only=True)
class Track:
    """A curve that can be drawn. `key` names it in its store; unit is "", "B/s" or "share"."""

    key: str
    kind: Kind
    name: str
    unit: str
    process: str
    device: int
    stream: int


def tracks(store: Store) -> tuple[Track, ...]:
    """Return the curves that can be made of a store: none without a clock, or without work of a device."""
    if not store.facts.has_clock:
        return ()
    streams = [lane for lane in store.lanes if lane.kind == "stream" and lane.events and not lane.title]
    devices = sorted({(lane.process, lane.device) for lane in streams})
    made = [
        Track(
            key=f"utilisation-{i}", kind="utilisation", name="", unit="share", process=process, device=device, stream=-1
        )
        for i, (process, device) in enumerate(devices)
    ]
    copies = store.sql("SELECT DISTINCT e.lane, e.name FROM ev e WHERE e.cat = ? AND e.bytes > 0", [int(Category.COPY)])
    owner = {lane.id: (lane.process, lane.device) for lane in streams}
    of_device = {
        (owner[lane], name) for lane, name in zip(copies["lane"].tolist(), copies["name"].tolist(), strict=True)
        if lane in owner
    }  # fmt: skip
    for place, name in sorted(of_device):
        number = devices.index(place)
        made.append(
            Track(
                key=f"bandwidth-{number}-{name}", kind="bandwidth", name=store.names[name], unit="B/s",
                process=place[0], device=place[1], stream=-1,
            )
        )  # fmt: skip
    linked = set(store.sql('SELECT DISTINCT lane FROM ev WHERE "link" != 0')["lane"].tolist())
    made += [
        Track(
            key=f"queue-{lane.id}", kind="queue", name="", unit="", process=lane.process, device=lane.device,
            stream=lane.stream,
        )
        for lane in streams if lane.id in linked
    ]  # fmt: skip
    return tuple(made)


def curve(store: Store, track: Track, *, begin: int, end: int) -> tuple[Ints, Floats]:
    """Return times [n] in Unix ns and values [n] of a curve in [begin, end), each holding until the next.

    Raises: TooManyEvents.
    """
    lanes = [
        lane.id for lane in store.lanes
        if lane.kind == "stream" and (lane.process, lane.device) == (track.process, track.device)
    ]  # fmt: skip
    if track.kind == "queue":
        return queue_depth(*_launched(store, int(track.key.partition("-")[2]), begin, end))
    columns = ("ts", "dur", "name", "bytes")
    wanted = [int(Category.COPY)] if track.kind == "bandwidth" else _DEVICE
    _check(store, lanes, begin, end)
    work = store.events(lanes=lanes, categories=wanted, begin=begin, end=end, columns=columns)
    ts, stop = work["ts"].astype(np.int64), (work["ts"] + work["dur"]).astype(np.int64)
    if track.kind == "utilisation":
        return utilisation(ts, stop, begin=max(begin, store.begin), end=min(end, store.end))
    rows = work["name"] == store.names.index(track.name)
    return bandwidth(ts[rows], stop[rows], work["bytes"][rows].astype(np.int64))


def queue_depth(called: Ints, began: Ints) -> tuple[Ints, Floats]:
    """Return the curve of calls [n] whose work began at moments [n]."""
    return _steps(np.concatenate([called, began]), np.concatenate([np.ones(len(called)), -np.ones(len(began))]))


def bandwidth(start: Ints, stop: Ints, size: Ints) -> tuple[Ints, Floats]:
    """Return the curve [bytes/s] of copies of `size` [n] bytes that ran in [start, stop) [n]."""
    stop = np.maximum(stop, start + 1_000 * (stop <= start))
    rate = size / (stop - start) * 1e9
    times, values = _steps(np.concatenate([start, stop]), np.concatenate([rate, -rate]))
    return times, np.where(np.abs(values) < 1e-3, 0.0, values)  # what adding and taking off has left


def utilisation(start: Ints, stop: Ints, *, begin: int, end: int) -> tuple[Ints, Floats]:
    """Return the share of each bin of [begin, end) that lies in the union of [start, stop) [n]."""
    if end <= begin:
        return np.empty(0, np.int64), np.empty(0)
    width = max(LEAST_BIN, -(-(end - begin) // _BINS))
    edges = np.append(np.arange(begin, end, width), end).astype(np.int64)
    busy = covered(edges[:-1], edges[1:], union(start, stop))
    return edges[:-1], busy / np.diff(edges)


def _steps(times: Ints, changes: Floats) -> tuple[Ints, Floats]:
    """Return the curve that changes so much at each moment; changes of one moment are one."""
    moments, which = np.unique(times, return_inverse=True)
    return moments, np.cumsum(np.bincount(which, weights=changes, minlength=len(moments)))


def _launched(store: Store, stream: int, begin: int, end: int) -> tuple[Ints, Ints]:
    """Return when each work of a stream that waits within a window was called, and when it began. [n]"""
    _check(store, [stream], begin, end)
    own = store.lanes[stream]
    threads = [
        lane.id for lane in store.lanes if lane.kind == "thread" and (lane.process, lane.pid) == (own.process, own.pid)
    ]
    rows = store.sql(
        'SELECT c.ts AS called, k.ts AS began FROM ev k JOIN ev c ON c."link" = k."link" '
        'WHERE k.lane = ? AND k."link" != 0 AND k.ts >= ? AND list_contains(?, c.lane) AND c.ts < ?',
        [stream, begin, threads, end],
    )
    return rows["called"].astype(np.int64), rows["began"].astype(np.int64)


def _check(store: Store, lanes: list[int], begin: int, end: int) -> None:
    rows = store.sql(
        "SELECT count(*) AS n FROM ev WHERE list_contains(?, lane) AND ts < ? AND ts + dur > ?", [lanes, end, begin]
    )
    count = int(rows["n"][0])
    if count > _MOST_EVENTS:
        raise TooManyEvents(
            f"The window holds {count:,} events of the device; curves are made of {_MOST_EVENTS:,} at most. "
            "Choose a shorter one."
        )
