"""Recorded runs that pairs are made of: several seeds of the demo, some beside a busy program, and runs of others.

The first are in tests/data/verdict (made by `record.py`), the others in tests/data/health.
"""

import gzip
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from jobs.comparison.conditions import RunConditions, load_of
from jobs.comparison.phases import STEP_METRIC
from jobs.comparison.read import Columns, SeriesPoints
from jobs.comparison.verdict import OUTCOMES
from tests.proofs.alarms.corpus import recorded

DATA = Path(__file__).parents[2] / "data" / "verdict" / "runs.json.gz"
LEAST_STEPS = 40
MEASURED = 12
"""Up to this seed runs gave the spread that counts without repeats (`DEMO_SPREAD`); later ones only test it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One recorded run. `seed` is 0 of a run that is no demo, `spinning` how many programs were busy beside it."""

    name: str
    seed: int
    spinning: int
    columns: Columns
    conditions: RunConditions

    @property
    def num_steps(self) -> int:
        """Its newest step."""
        return max(int(points.x[-1]) for points in self.columns.values())


@cache
def demos() -> tuple[Sample, ...]:
    """Return the recorded runs of the demo."""
    return tuple(_demo(raw) for raw in _raw())


@cache
def others() -> tuple[Sample, ...]:
    """Return healthy runs of other algorithms, trainers and machines that have step times and 40 steps."""
    samples = []
    for run in recorded():
        columns = {
            name: SeriesPoints(
                x=np.array([step for step, _value in points]), y=np.array([value for _step, value in points])
            )
            for name, points in run.series.items()
            if name.startswith("time/") or name in OUTCOMES
        }
        if run.is_healthy and STEP_METRIC in columns and len(columns[STEP_METRIC].x) >= LEAST_STEPS:
            samples.append(Sample(name=run.name, seed=0, spinning=0, columns=columns, conditions=RunConditions()))
    return tuple(samples)


def save(runs: list[dict[str, Any]]) -> None:
    """Keep what was recorded, beside the runs on a shared machine that are there."""
    kept = [raw for raw in _raw() if raw["name"].endswith("-shared")]
    text = json.dumps({"runs": [*runs, *kept]}, separators=(",", ":"))
    DATA.write_bytes(gzip.compress(text.encode(), mtime=0))


def _raw() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(gzip.decompress(DATA.read_bytes()))["runs"]
    return found


def _demo(raw: Mapping[str, Any]) -> Sample:
    columns = {name: SeriesPoints(x=np.array(x), y=np.array(y, float)) for name, (x, y) in raw["series"].items()}
    readings = np.array(raw["readings"], float)
    load = load_of(percent=readings[:, 1], cores=readings[:, 2], own=readings[:, 3])
    return Sample(
        name=raw["name"],
        seed=raw["seed"],
        spinning=raw["spinning"],
        columns=columns,
        conditions=RunConditions(load=load),
    )
