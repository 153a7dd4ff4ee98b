"""What the machines of a run did, on one grid of times: nodes, their devices, and the processes of roles on them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from jobs.models import Run, RunEvent
from jobs.telemetry.chunks import Floats, Ints
from jobs.telemetry.series import Series, read_series

MOST_COLUMNS = 240
LEAST_COLUMNS = 40
MOST_VALUES = 60_000  # of one table: with very many lanes there are fewer columns
STALE_NS = 30_000_000_000  # a reading counts for so long, or for two columns of the grid
MOST_DEVICES = 16  # of a node

Kind = Literal["node", "device", "process"]
_NODE_ROLES = ("runner", "node")
_NAMES = (
    "cpu_percent",
    "memory_used_bytes",
    "memory_total_bytes",
    "memory_bytes",
    "device_memory_bytes",
    *(
        f"gpu{index}_{what}"
        for index in range(MOST_DEVICES)
        for what in ("busy_percent", "memory_used_bytes", "memory_total_bytes")
    ),
)
_OF_DEVICE = re.compile(r"gpu(\d+)_(\w+)")


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class FleetLane:
    """A node, a device of it, or the process of a role and rank; `node` is 0 for the runner's, -1 where not known."""

    node: int
    kind: Kind
    device: int = -1
    role: str = ""
    rank: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetBand:
    """Least, middle and most over all lanes of a kind at each time; NaN where none reported."""

    kind: Kind
    low: Floats
    middle: Floats
    high: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineReadings:
    """Readings of the newest attempt. Tables are [lanes, times], NaN where nothing was read.

    `times` are Unix ns. `utilization` is a share, `memory_bytes` what is used, `memory_share` of what there is.
    `node_names` are those that the trainer told of.
    """

    times: Ints
    lanes: tuple[FleetLane, ...]
    utilization: Floats
    memory_bytes: Floats
    memory_share: Floats
    node_names: Mapping[int, str]

    def bands(self, table: Floats) -> tuple[FleetBand, ...]:
        """Return the bands of one of the tables, one for each kind of which something was read."""
        bands = []
        for kind in ("node", "device", "process"):
            rows = table[[lane.kind == kind for lane in self.lanes]]
            is_read = np.isfinite(rows).any(axis=0) if len(rows) else np.zeros(0, bool)
            if is_read.any():
                low, middle, high = (np.full(len(self.times), np.nan) for _ in range(3))
                some = rows[:, is_read]
                low[is_read], high[is_read] = np.nanmin(some, axis=0), np.nanmax(some, axis=0)
                middle[is_read] = np.nanmedian(some, axis=0)
                bands.append(FleetBand(kind=kind, low=low, middle=middle, high=high))
        return tuple(bands)


def read_fleet(run: Run) -> MachineReadings:
    """Return what the machines of the run's newest attempt did."""
    answer = read_series(run_id=run.pk, names=_NAMES, num_points=2 * MOST_COLUMNS)
    system_series = [
        each for each in answer.series if each.kind == "system" and each.attempt == run.latest_attempt and each.n
    ]
    names, places, rest = _placement(run)
    by_lane: dict[FleetLane, dict[str, Series]] = {}
    for each in system_series:
        lane, reading = _lane(each, places, rest)
        by_lane.setdefault(lane, {})[reading] = each
    lanes = tuple(sorted(by_lane, key=lambda lane: (lane.node < 0, lane)))
    times = _grid(system_series, len(lanes))
    tables = np.full((3, len(lanes), len(times)), np.nan)
    totals = {
        lane.node: _held(by_lane[lane]["memory_total_bytes"], times)
        for lane in lanes
        if lane.kind == "node" and "memory_total_bytes" in by_lane[lane]
    }
    for row, lane in enumerate(lanes):
        own = {name: _held(series, times) for name, series in by_lane[lane].items()}
        unread = np.full(len(times), np.nan)
        tables[0, row] = own.get("cpu_percent", own.get("busy_percent", unread)) / 100
        used = own.get("memory_used_bytes", own.get("memory_bytes", unread))
        total = own.get("memory_total_bytes", totals.get(lane.node, unread) if lane.kind == "process" else unread)
        tables[1, row], tables[2, row] = used, used / total
    return MachineReadings(
        times=times,
        lanes=lanes,
        utilization=tables[0],
        memory_bytes=tables[1],
        memory_share=tables[2],
        node_names=names,
    )


def _lane(series: Series, places: Mapping[str, int], rest: int) -> tuple[FleetLane, str]:
    """Return whose reading it is, and its name without the device's; `rest` is the node of a worker without a place."""
    if series.role not in _NODE_ROLES:
        node = places.get(f"{series.role}-{series.rank}", rest)
        return FleetLane(node=node, kind="process", role=series.role, rank=series.rank), series.name
    node = 0 if series.role == "runner" else series.rank
    if match := _OF_DEVICE.fullmatch(series.name):
        return FleetLane(node=node, kind="device", device=int(match[1])), match[2]
    return FleetLane(node=node, kind="node"), series.name


def _placement(run: Run) -> tuple[dict[int, str], dict[str, int], int]:
    """Return the names of nodes by index, worker ("policy-0") -> index as was told, and that of all other workers.

    On one node nothing is told, and all are there. Of a trainer that does not tell its runner reads those on its own
    node, which it lists without workers. Elsewhere nobody knows.
    """
    note = RunEvent.objects.filter(run=run, attempt=run.latest_attempt, verb="note", data__has_key="nodes").last()
    nodes = note.data["nodes"] if note is not None else []
    names = {node["index"]: node["name"] or node["address"] for node in nodes}
    places = {worker: node["index"] for node in nodes for worker in node["workers"]}
    is_rest_here = not nodes or any(node["index"] == 0 and not node["workers"] for node in nodes)
    return names, places, 0 if is_rest_here else -1


def _grid(system_series: list[Series], num_lanes: int) -> Ints:
    if not system_series:
        return np.zeros(0, dtype=np.int64)
    first, last = min(int(each.x[0]) for each in system_series), max(int(each.x[-1]) for each in system_series)
    most = max(LEAST_COLUMNS, min(MOST_COLUMNS, MOST_VALUES // max(1, num_lanes)))
    return np.unique(np.linspace(first, last, most).astype(np.int64))


def _held(series: Series, times: Ints) -> Floats:
    """Return at each time the newest reading that is not stale by then, NaN without one."""
    stale = max(STALE_NS, 2 * int(times[1] - times[0]) if len(times) > 1 else 0)
    at = np.searchsorted(series.x, times, side="right") - 1
    values = np.where(at >= 0, series.y[at], np.nan)
    return np.where(times - series.x[at] <= stale, values, np.nan)
