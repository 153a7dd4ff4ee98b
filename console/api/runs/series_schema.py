"""Shapes of what a run's data looks like through the API, and its numbers as JSON."""

from typing import Any

import numpy as np
from ninja import Field, Schema

from jobs.telemetry.chunks import Floats
from jobs.telemetry.logs import LogLine
from profiling.events import encode_number

Number = float | str | None


class MetricOut(Schema):
    """A series, and what is known of its metric. `label` to `definition` come from the dictionary of metrics."""

    kind: str
    name: str
    role: str
    rank: int
    label: str
    unit: str
    better: str
    definition: str


class MetricsOut(Schema):
    """Every series of a run, complete through frame `through_seq`."""

    through_seq: int
    metrics: list[MetricOut]


class SeriesOut(Schema):
    """One series of one attempt: `n` real points standing for `of`. Numbers not finite are "NaN", "Infinity"..."""

    kind: str
    name: str
    role: str
    rank: int
    attempt: int
    n: int
    of: int
    row_points: int = Field(description="points that each row read stood for; 1 wherever smoothing was asked for")
    x: list[int | str] = Field(description="step; of kind system Unix ns as decimal strings")
    y: list[Number]
    low: list[Number] = Field(description="smallest y of the stretch around the point; empty if every point is there")
    high: list[Number]
    smooth: list[Number] | None


class SeriesListOut(Schema):
    """Series complete through frame `through_seq`: follow the websocket from there."""

    through_seq: int
    series: list[SeriesOut]


class AxisOut(Schema):
    """Where steps stand on an x axis: `place` is how far the run had come when `step` ended. Both rising."""

    x: str
    step: list[int]
    place: list[float]


class LaneOut(Schema):
    """Spans of one role and rank; columns. `start` is Unix ns as a decimal string, `duration` ns."""

    role: str
    rank: int
    attempt: int
    phase: list[int] = Field(description="index into phases")
    name: list[str]
    start: list[str]
    duration: list[int]
    depth: list[int]
    step: list[int]


class SpansOut(Schema):
    """The timeline of a window: `n` spans of the `of` that touch it; where some are left out, the longest are here."""

    through_seq: int
    n: int
    of: int
    phases: list[str]
    lanes: list[LaneOut]


class LogLaneOut(Schema):
    """A role and rank that logged something."""

    role: str
    rank: int


class LogsOut(Schema):
    """Lines in the order they came. `searched`: where the time ran out before the page was full, the cursor up to
    which all was looked at, to go on from as `before` or `after`; else "". `num_older`: how many lines come before
    these, null where they are not counted: after a cursor, and of a search."""

    lines: list[LogLine]
    has_older: bool
    has_newer: bool
    num_older: int | None
    searched: str
    lanes: list[LogLaneOut]


def numbers(column: Floats) -> Any:
    """Return the column for orjson: itself if every number is finite, else a list with names for those that are not."""
    if np.isfinite(column).all():
        return np.ascontiguousarray(column)
    return [encode_number(value) for value in column.tolist()]
