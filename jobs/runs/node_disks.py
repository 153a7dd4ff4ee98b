"""The disks of run directories on the cluster's nodes, as the runners of live runs last read them."""

import math
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from jobs.models import LIVE, Run, RunEvent
from jobs.telemetry.series import Series, SeriesWindow, read_series

RECENT = timedelta(minutes=5)
LOW = 0.1
"""The free part below which a disk is nearly full: a checkpoint may be larger than that."""
_MOST_RUNS = 20
_POINTS = 1000  # more than a node sends in that time: its newest is one of them
_FREE, _TOTAL = "disk_free_bytes", "disk_total_bytes"
_MAX_NAME = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDisk:
    """The disk of a node's run directories, in bytes, and a run that told of it."""

    node: str
    run_id: str
    free: int
    total: int

    @property
    def used(self) -> int:
        """What anybody has put there."""
        return self.total - self.free

    @property
    def is_low(self) -> bool:
        """True while less than a tenth is free."""
        return self.free < LOW * self.total


def node_disks(projects: set[int], *, now: datetime) -> tuple[NodeDisk, ...]:
    """Return the disks that live runs of these projects told of lately, the fullest first; each node once."""
    by_node: dict[str, NodeDisk] = {}
    runs = Run.objects.filter(state__in=LIVE, project__in=projects).order_by("-created_at")[:_MOST_RUNS]
    window = SeriesWindow(low=int((now - RECENT).timestamp() * 1e9))
    for run in runs:
        answer = read_series(run_id=run.pk, names=[_FREE, _TOTAL], num_points=_POINTS, window=window)
        newest = {(one.rank, one.name): _newest(one) for one in answer.series if _counts(one, run)}
        names = _names(run)
        for rank in sorted({rank for rank, _name in newest}):
            free, total = newest.get((rank, _FREE)), newest.get((rank, _TOTAL))
            node = names.get(rank, f"{run.pk}, node {rank}")
            if free is not None and total:
                by_node.setdefault(node, NodeDisk(node=node, run_id=run.pk, free=free, total=total))
    return tuple(sorted(by_node.values(), key=lambda disk: disk.free / disk.total))


def _counts(series: Series, run: Run) -> bool:
    return series.role == "node" and series.attempt == run.latest_attempt and series.n > 0


def _newest(series: Series) -> int | None:
    value = float(series.y[-1])
    return int(value) if math.isfinite(value) and value >= 0 else None


def _names(run: Run) -> dict[int, str]:
    """Return what the trainer calls the nodes of its attempt, by their index; what it says may be anything."""
    notes = RunEvent.objects.filter(run=run, attempt=run.latest_attempt, verb="note", data__has_key="nodes")
    data: Any = notes.order_by("-pk").values_list("data", flat=True).first()
    nodes = data["nodes"] if data and isinstance(data["nodes"], list) else []
    rows = [node for node in nodes if isinstance(node, dict) and type(node.get("index")) is int]
    return {node["index"]: str(node.get("name") or node.get("address") or "")[:_MAX_NAME] for node in rows}
