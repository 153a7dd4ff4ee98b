"""What happened in a part of a trace: events by name, how busy each device was, and when steps began."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from profiling.analysis.intervals import clipped, intersection, total, union
from profiling.analysis.steps import across, worker_steps
from profiling.evidence import Step
from profiling.trace.category import DEVICE, Category
from profiling.trace.store import Store

_MOST_STEPS = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class NameSum:
    """Events of one name in a window: how many, their time inside it together and that of the longest [ns].

    `on_device`: on lanes of a device; what the host and a device call alike are two.
    """

    name: str
    category: str
    on_device: bool
    count: int
    total: int
    longest: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSum:
    """What one device did in a window [ns]: its work and its communication as unions over streams.

    `overlapped` is communication during which something else ran on the device; `longest_gap` is without any work.
    """

    process: str
    device: int
    busy: int
    communication: int
    overlapped: int
    longest_gap: int
    kernels: int
    median_kernel: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowSum:
    """A summary of [begin, end) in Unix ns over all, or some, lanes; `names` are those with the most time."""

    begin: int
    end: int
    count: int
    names: tuple[NameSum, ...]
    devices: tuple[DeviceSum, ...]


def summarise_window(
    store: Store, *, begin: int, end: int, lanes: Sequence[int] | None = None, limit: int = 40
) -> WindowSum:
    """Return what happened in [begin, end), each event with the part of it that lies inside."""
    where = "ts < $end AND ts + dur > $begin"
    of_devices = [lane.id for lane in store.lanes if lane.device >= 0]
    params: dict[str, object] = {"begin": begin, "end": end, "limit": limit, "devices": of_devices}
    if lanes is not None:
        where += " AND list_contains($lanes, lane)"
        params["lanes"] = [int(lane) for lane in lanes]
    rows = store.sql(
        "SELECT n.text AS name, g.* EXCLUDE (name) FROM ("  # noqa: S608
        "SELECT name, list_contains($devices, lane) AS on_device, first(cat) AS cat, count(*) AS n, "
        "sum(least(ts + dur, $end) - greatest(ts, $begin))::DOUBLE AS total, max(dur) AS longest, "
        f"sum(count(*)) OVER ()::BIGINT AS events FROM ev WHERE {where} GROUP BY name, on_device) g "
        "JOIN names n ON n.id = g.name ORDER BY total DESC, n.text, on_device LIMIT $limit",
        params,
    )
    names = tuple(
        NameSum(
            name=name, category=Category(cat).name.lower(), on_device=is_there, count=n, total=int(ns), longest=longest
        )
        for name, cat, is_there, n, ns, longest in zip(
            *(rows[key].tolist() for key in ("name", "cat", "on_device", "n", "total", "longest")), strict=True
        )
    )
    count = int(rows["events"][0]) if len(rows["events"]) else 0
    return WindowSum(begin=begin, end=end, count=count, names=names, devices=_devices(store, begin, end, lanes))


def _devices(store: Store, begin: int, end: int, chosen: Sequence[int] | None) -> tuple[DeviceSum, ...]:
    if not store.facts.has_clock:
        return ()  # what lay between its events is not known
    streams = [lane for lane in store.lanes if lane.kind == "stream" and (chosen is None or lane.id in chosen)]
    sums = []
    for process, device in sorted({(lane.process, lane.device) for lane in streams}):
        lane_ids = [lane.id for lane in streams if (lane.process, lane.device) == (process, device)]
        work = store.events(
            lanes=lane_ids,
            categories=[int(one) for one in DEVICE],
            begin=begin,
            end=end,
            columns=("ts", "dur", "cat"),
        )
        sums.append(_device(process, device, work["ts"], work["ts"] + work["dur"], work["cat"], begin, end))
    return tuple(sums)


def _device(
    process: str,
    device: int,
    start: npt.NDArray[np.int64],
    stop: npt.NDArray[np.int64],
    category: npt.NDArray[np.uint8],
    begin: int,
    end: int,
) -> DeviceSum:
    busy = clipped(union(start, stop), begin, end)
    talks = category == Category.COMMUNICATION
    communication = clipped(union(start[talks], stop[talks]), begin, end)
    compute = clipped(union(start[~talks], stop[~talks]), begin, end)
    kernels = (stop - start)[category == Category.KERNEL]
    edges = np.concatenate([[begin], busy.end, [end]])
    gaps = np.concatenate([busy.begin, [end]]) - edges[: len(busy) + 1]
    return DeviceSum(
        process=process,
        device=device,
        busy=total(busy),
        communication=total(communication),
        overlapped=total(intersection(communication, compute)),
        longest_gap=int(gaps.max()),
        kernels=len(kernels),
        median_kernel=float(np.median(kernels)) if len(kernels) else 0.0,
    )


def steps(store: Store) -> tuple[Step, ...]:
    """Return the steps that the trace marks (torch's ProfilerStep#3, a range `step 3`), by begin.

    Each lasts until the last device work that it launched, as in the summary; of several processes from the first that
    begins it to the last that ends it.
    """
    marked = store.sql("SELECT DISTINCT lane FROM ev WHERE cat = ?", [int(Category.STEP)])["lane"].tolist()
    pids = {store.lanes[lane].pid for lane in marked}
    families = [[lane for lane in store.lanes if lane.pid == pid] for pid in sorted(pids)]
    return across(worker_steps(store, lanes) for lanes in families)[:_MOST_STEPS]


def thinned(
    times: npt.NDArray[np.int64], values: npt.NDArray[np.float64], points: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Return at most about `points` samples [m] of a series [n]: least and greatest of each part, in their order."""
    n = len(times)
    if n <= points or points < 4:
        return times, values
    edges = np.linspace(0, n, points // 2 + 1).astype(np.int64)
    keep: list[int] = []
    for first, last in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        if last > first:
            part = values[first:last]
            keep += sorted({first + int(part.argmin()), first + int(part.argmax())})
    return times[keep], values[keep]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """An event that a search came to; `begin` in Unix ns, `duration` in ns."""

    event: int
    lane: int
    depth: int
    begin: int
    duration: int
    name: str


def find_next(store: Store, text: str, *, at: int, is_back: bool = False) -> Hit | None:
    """Return the first event that begins after `at` (the last before it) with `text` in its name, in any case."""
    compare, direction = ("<", "DESC") if is_back else (">", "ASC")
    rows = store.sql(
        "SELECT e.rowid AS event, e.lane, e.depth, e.ts, e.dur, n.text AS name FROM ev e JOIN names n "  # noqa: S608
        "ON n.id = e.name WHERE e.name IN (SELECT id FROM names WHERE contains(lower(text), lower(?))) "
        f"AND e.ts {compare} ? ORDER BY e.ts {direction}, e.rowid {direction} LIMIT 1",
        [text, at],
    )
    if not len(rows["event"]):
        return None
    return Hit(
        event=int(rows["event"][0]),
        lane=int(rows["lane"][0]),
        depth=int(rows["depth"][0]),
        begin=int(rows["ts"][0]),
        duration=int(rows["dur"][0]),
        name=str(rows["name"][0]),
    )
