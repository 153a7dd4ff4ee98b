"""Small lines of a run's main metric for lists, as SVG points; x runs to the planned end, so they show progress."""

import math
from collections.abc import Sequence
from functools import lru_cache

from jobs.runs.filter import main_metric
from jobs.runs.header import RunHeader
from jobs.telemetry.clean_series import read_clean

_POINTS = 42
_MARGIN = 1.5  # half a line's width and a little, so that nothing is cut
_KEPT = 2000


def sparklines(headers: Sequence[RunHeader], *, width: int, height: int) -> dict[str, str]:
    """Return run id -> SVG points ("0.0,18.5 2.1,17.0 ...") in a box of width by height.

    Runs without two finite points are left out. A line is read once per newest frame and attempt, and kept.
    """
    lines = {}
    for header in headers:
        name = main_metric(header.algorithm)
        if not header.seq or not name:
            continue
        line = _line(header.id, name, header.num_steps, width, height, header.attempt, header.seq)
        if line:
            lines[header.id] = line
    return lines


@lru_cache(maxsize=_KEPT)
def _line(run_id: str, name: str, num_steps: int, width: int, height: int, _attempt: int, _seq: int) -> str:
    answer = read_clean(run_id=run_id, names=[name], num_points=_POINTS)
    own_series = [s for s in answer.series if s.kind == "metric" and s.role == "driver"]
    pairs = [(int(x), float(y)) for s in own_series for x, y in zip(s.x, s.y, strict=True)]
    pairs = [(x, y) for x, y in pairs if math.isfinite(y)]
    return spark_line(pairs, num_steps=num_steps, width=width, height=height)


def spark_line(pairs: Sequence[tuple[int, float]], *, num_steps: int, width: int, height: int) -> str:
    """Return finite points (step, value), in the order of steps, as SVG points in the box; "" of fewer than two."""
    if len(pairs) < 2:
        return ""
    low, high = min(y for _x, y in pairs), max(y for _x, y in pairs)
    first = min(x for x, _y in pairs)
    last = max(num_steps, max(x for x, _y in pairs), first + 1)
    drawn_height = height - 2 * _MARGIN

    def place(x: int, y: float) -> str:
        share = (y - low) / (high - low) if high > low else 0.5
        return f"{(x - first) / (last - first) * width:.1f},{_MARGIN + (1 - share) * drawn_height:.1f}"

    return " ".join(place(x, y) for x, y in pairs)
