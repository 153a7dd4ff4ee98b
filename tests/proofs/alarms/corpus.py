"""Recorded runs, healthy and not: their metrics by step, what they were, and where they come from.

The file is tests/data/health/runs.json.gz; its README says how it was made.
"""

import gzip
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

DATA = Path(__file__).parents[2] / "data" / "health" / "runs.json.gz"

Points = list[tuple[int, float]]  # step, value


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRun:
    """The metrics of one run. `expected` are the symptoms of which one has to be named; none of a healthy run.

    `planted` says what was changed in a recorded run, "" where nothing was.
    """

    name: str
    expected: tuple[str, ...]
    origin: str
    spec: Mapping[str, Any]
    series: Mapping[str, Points]
    planted: str = ""

    @property
    def is_healthy(self) -> bool:
        """True if nothing is wrong with it."""
        return not self.expected

    @property
    def num_steps(self) -> int:
        """The newest step."""
        return max(points[-1][0] for points in self.series.values())

    def as_question(self) -> dict[str, Any]:
        """Return it as `judge` reads it, JSON-able: what is no number is null.

        A healthy run is asked at every step, as whoever watches it live, one with a fault at its end.
        """
        series = {
            name: [(step, value if math.isfinite(value) else None) for step, value in points]
            for name, points in self.series.items()
        }
        moments = self.num_steps if self.is_healthy else 1
        return {
            "name": self.name,
            "spec": self.spec,
            "planned": self.num_steps,
            "series": series,
            "moments": moments,
        }


@cache
def recorded() -> tuple[RecordedRun, ...]:
    """Return every recorded run."""
    return tuple(_run(raw) for raw in json.loads(gzip.decompress(DATA.read_bytes()))["runs"])


def _run(raw: Mapping[str, Any]) -> RecordedRun:
    return RecordedRun(
        name=raw["name"],
        expected=tuple(raw["expected"]),
        origin=raw["origin"],
        spec=raw["spec"],
        series={name: _points(packed) for name, packed in raw["series"].items()},
    )


def _points(packed: Mapping[str, Any]) -> Points:
    """Unpack a series: `at` lists its steps, or `steps` has the first and how many; one value stands for all."""
    if "at" in packed:
        steps: Sequence[int] = packed["at"]
    else:
        first, count = packed["steps"]
        steps = range(first, first + count)
    values = packed["y"] if len(packed["y"]) > 1 else packed["y"] * len(steps)
    return [(step, math.nan if value is None else float(value)) for step, value in zip(steps, values, strict=True)]
