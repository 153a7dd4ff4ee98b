"""Frames as columns: the points of each series, the spans of each lane, in the order they came. No database."""

from collections.abc import Iterable
from typing import Any

from jobs.telemetry.chunks import Points, Spans, points, spans_of
from jobs.telemetry.frames import FrameMessage, ReadingColumns

SeriesKey = tuple[str, str, str, int]  # kind, name, role, rank


def collect(frames: Iterable[FrameMessage], *, wanted: frozenset[str] | None = None) -> dict[SeriesKey, Points]:
    """Return the points of the frames by series, in the order they came; with `wanted`, of these names only."""
    columns: dict[SeriesKey, tuple[list[int], list[int], list[float]]] = {}
    for frame in frames:
        lanes: list[tuple[str, ReadingColumns, list[int] | None]] = [
            *(("metric", lane, lane["steps"]) for lane in frame["metrics"]),
            *(("system", lane, None) for lane in frame["system"]),
        ]
        for kind, lane, steps in lanes:
            ts = [int(t) for t in lane["t"]]
            for name, values in lane["values"].items():
                if wanted is not None and name not in wanted:
                    continue
                column = columns.get(key := (kind, name, lane["role"], lane["rank"]))
                if column is None:
                    column = columns[key] = ([], [], [])
                for x, t, y in zip(steps or ts, ts, values, strict=True):
                    if y is not None:
                        column[0].append(x)
                        column[1].append(t)
                        column[2].append(float(y))
    return {key: points(x, t, y) for key, (x, t, y) in columns.items() if x}


def collect_spans(frames: Iterable[FrameMessage]) -> dict[tuple[str, int], Spans]:
    """Return the spans of the frames by role and rank, in the order they came."""
    lanes: dict[tuple[str, int], dict[str, list[Any]]] = {}
    for lane in (lane for frame in frames for lane in frame["spans"]):
        columns = lanes.setdefault((lane["role"], lane["rank"]), {})
        for name in ("phase", "name", "start", "duration", "depth", "step"):
            columns.setdefault(name, []).extend(lane[name])
    return {key: spans_of(columns) for key, columns in lanes.items()}
