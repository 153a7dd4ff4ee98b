"""What the console holds of a run, against what the trainer wrote: every point once, with its value."""

import contextlib
import math
from collections import Counter
from pathlib import Path
from typing import Any

import httpx

from tests.proofs.faults.trainer import events

Key = tuple[str, str, int, int]  # metric, role, rank, step
NAMES_AT_ONCE = 20


def written(run_dir: Path) -> dict[Key, float]:
    """Return the points of an attempt as its trainer wrote them."""
    found = {}
    for event in events(run_dir):
        if event["kind"] == "metric":
            for name, value in event["values"].items():
                found[(name, event["role"], event["rank"], event["step"])] = float(value)
    return found


def stored(http: httpx.Client, run: str, *, attempt: int) -> tuple[dict[Key, float], int]:
    """Return the points of an attempt as the API gives them, and how many stand there more than once."""
    listed = http.get(f"/api/runs/{run}/metrics").raise_for_status().json()["metrics"]
    names = sorted({m["name"] for m in listed if m["kind"] == "metric"})
    found: dict[Key, float] = {}
    seen: Counter[Key] = Counter()
    for first in range(0, len(names), NAMES_AT_ONCE):
        asked = {"metrics": ",".join(names[first : first + NAMES_AT_ONCE]), "points": 5000}
        answer: dict[str, Any] = http.get(f"/api/runs/{run}/series", params=asked).raise_for_status().json()
        for series in answer["series"]:
            if series["attempt"] != attempt or series["kind"] != "metric":
                continue
            for x, y in zip(series["x"], series["y"], strict=True):
                key = (series["name"], series["role"], series["rank"], int(x))
                seen[key] += 1
                found[key] = float(y)
    return found, sum(count - 1 for count in seen.values())


def compare(http: httpx.Client, run: str, run_dir: Path, *, attempt: int = 1) -> dict[str, int]:
    """Return how many points there are, how many are lost, doubled, changed, or were never written."""
    mine = written(run_dir)
    theirs: dict[Key, float] = {}
    doubled = 0
    with contextlib.suppress(httpx.HTTPError):
        theirs, doubled = stored(http, run, attempt=attempt)
    return {
        "points": len(mine),
        "lost": len(mine.keys() - theirs.keys()),
        "doubled": doubled,
        "invented": len(theirs.keys() - mine.keys()),
        "changed": sum(not _same(mine[key], theirs[key]) for key in mine.keys() & theirs.keys()),
    }


def _same(a: float, b: float) -> bool:
    return a == b or (math.isnan(a) and math.isnan(b)) or math.isclose(a, b, rel_tol=1e-6)  # float32 on the wire
