"""What a capture costs: bytes, seconds at start and stop, how much slower a recorded step is; and what room there is.

Costs are what the run's own captures with the same tool came to; else the measurements of docs/use/profile.md, on the
bundled model. Where neither is known nothing is said, and nothing refused.
"""

import math
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import median
from typing import Any, TypeGuard

from jobs.models import Capture, Run
from jobs.storage.floor import room_for_people
from jobs.telemetry.series import SeriesWindow, read_series
from profiling.config import TOOLS

NEWEST = 20

READING = "disk_free_bytes"
RECENT = timedelta(minutes=5)
_POINTS = 1000  # more than a node sends in that time: its newest is one of them


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureCost:
    """What one tool costs on this run; None where it is not known.

    `step_bytes` and `second_bytes` are of one worker, `stall_seconds` of the whole run, at start and stop together.
    `slowdown` is the time of a recorded step divided by that of its neighbours. `captures` is how many of the run these
    are from, 0 for measurements elsewhere.
    """

    tool: str
    step_bytes: float | None = None
    second_bytes: float | None = None
    stall_seconds: float | None = None
    slowdown: float | None = None
    captures: int = 0

    def bytes(self, *, workers: int, num_steps: int, seconds: float) -> int | None:
        """Return how large a capture will be, None where that is not known."""
        each = self.second_bytes if seconds else self.step_bytes
        return None if each is None else round(workers * each * (seconds or num_steps))


MEASURED = {
    "torch": CaptureCost(tool="torch", step_bytes=0.26e6, second_bytes=0.31e6, stall_seconds=0.3),
    "torch_pieces": CaptureCost(tool="torch_pieces", step_bytes=0.26e6, second_bytes=0.31e6),
    "nsys": CaptureCost(tool="nsys", step_bytes=0.08e6, second_bytes=0.1e6, stall_seconds=1.2),
    "stacks": CaptureCost(tool="stacks", step_bytes=0.04e6, second_bytes=0.012e6, stall_seconds=0.02),
}
"""Of the demo, on average of its workers: docs/use/profile.md, "What it costs"."""


def costs(run: Run) -> list[CaptureCost]:
    """Return what each tool costs on this run."""
    rows = run.captures.filter(state="ready").order_by("-created_at").prefetch_related("files")[:NEWEST]
    own: dict[str, list[CaptureCost]] = {}
    for row in rows:
        if (cost := _cost_of(row)) is not None:
            own.setdefault(row.tool, []).append(cost)
    return [_median(tool, own[tool]) if tool in own else MEASURED.get(tool, CaptureCost(tool=tool)) for tool in TOOLS]


def free_bytes() -> int:
    """Return the free bytes of the console's disk that captures may take."""
    return room_for_people()


def expected_bytes(*, run: Run, tool: str, workers: int, num_steps: int, seconds: float) -> int | None:
    """Return how large a capture of so many workers will be, None where that is not known."""
    cost = next(one for one in costs(run) if one.tool == tool)
    return cost.bytes(workers=workers, num_steps=num_steps, seconds=seconds)


def _cost_of(row: Capture) -> CaptureCost | None:
    """Return what a ready capture came to."""
    sizes = [file.size for file in row.files.all()]
    steps = row.recorded_steps
    if not sizes or steps is None:
        return None
    overhead = row.meta.get("overhead")
    overhead = overhead if isinstance(overhead, dict) else {}
    times = overhead.get("step_seconds")
    times = [t for t in times if _is_time(t)] if isinstance(times, list) else []
    beside = overhead.get("neighbor_step_seconds")
    begin, end = overhead.get("start_seconds"), overhead.get("stop_seconds")
    each = sum(sizes) / len(sizes)
    seconds = _seconds(row) if row.seconds else sum(times)
    return CaptureCost(
        tool=row.tool,
        step_bytes=None if row.seconds else each / (steps[1] - steps[0] + 1),  # by time it began and ended within one
        second_bytes=each / seconds if seconds else None,
        stall_seconds=begin + end if _is_time(begin) and _is_time(end) else None,
        slowdown=median(times) / beside if times and not row.seconds and _is_time(beside) and beside else None,
    )


def _seconds(row: Capture) -> float:
    """Return how long a capture by time recorded, 0 if that was not told."""
    begin, end = (row.state_times.get(state) for state in ("recording", "stopping"))
    return (datetime.fromisoformat(end) - datetime.fromisoformat(begin)).total_seconds() if begin and end else 0.0


def _is_time(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e9


def _median(tool: str, own: list[CaptureCost]) -> CaptureCost:
    def of(name: str) -> float | None:
        values = [value for one in own if (value := getattr(one, name)) is not None]
        return median(values) if values else getattr(MEASURED.get(tool), name, None)

    return CaptureCost(
        tool=tool,
        step_bytes=of("step_bytes"),
        second_bytes=of("second_bytes"),
        stall_seconds=of("stall_seconds"),
        slowdown=of("slowdown"),
        captures=len(own),
    )


def cluster_free_bytes(run: Run, *, now: datetime) -> int | None:
    """Return the free bytes of the fullest disk of run directories, as last read; None if none was read lately."""
    window = SeriesWindow(low=int((now - RECENT).timestamp() * 1e9))
    series = read_series(run_id=run.pk, names=[READING], num_points=_POINTS, window=window).series
    newest = [float(one.y[-1]) for one in series if one.attempt == run.latest_attempt and one.role == "node" and one.n]
    finite = [free for free in newest if math.isfinite(free) and free >= 0]
    return int(min(finite)) if finite else None
