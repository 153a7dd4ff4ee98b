"""The points of the proof of the live path: every value follows from its step and series, so any viewer can tell."""

import time
from typing import Any

import numpy as np

SERIES = 20  # values of one metric event; a point is one of them
NAMES = tuple(f"proof/{i:02d}" for i in range(SERIES))


def event(step: int) -> dict[str, Any]:
    """Return the metric event of a step, emitted now."""
    values = {name: value_at(step, i) for i, name in enumerate(NAMES)}
    head = {"kind": "metric", "attempt": 1, "step": step, "role": "driver", "rank": 0, "t": time.time_ns()}
    return {**head, "values": values}


def value_at(step: int, series: int) -> float:
    """Return the value of a series at a step; a sum of sixteenths, so that JSON and float64 hold it exactly."""
    return step + series / 16


def wrong_values(steps: np.ndarray, values: dict[str, list[float]]) -> int:
    """Return how many points of a frame's lane are not what they have to be, missing series included."""
    wrong = 0
    for i, name in enumerate(NAMES):
        given = values.get(name)
        if given is None or len(given) != len(steps):
            wrong += len(steps)
        else:
            wrong += int((np.asarray(given) != steps + i / 16).sum())
    return wrong + sum(len(column) for name, column in values.items() if name not in NAMES)
