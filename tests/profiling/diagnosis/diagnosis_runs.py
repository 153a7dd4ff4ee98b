"""Runs made up by hand, as evidence: steps of given phases on a driver and on ranks, and readings beside them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from profiling.evidence import CaptureFacts, Evidence, Readings, phase_spans

SECOND = 1_000_000_000
BEGIN = 1_700_000_000 * SECOND

Row = tuple[str, int, int, str, str, int, int, int]


def driver(steps: Sequence[Mapping[str, float]], *, gap: float = 0.0) -> list[Row]:
    """Return spans of the driver, one mapping of phase to seconds a step; `gap` seconds follow each step."""
    rows: list[Row] = []
    at = BEGIN
    for number, phases in enumerate(steps, 1):
        for phase, seconds in phases.items():
            rows.append(("driver", 0, number, phase, "", 0, at, int(seconds * SECOND)))
            at += int(seconds * SECOND)
        at += int(gap * SECOND)
    return rows


def ranks(role: str, phase: str, seconds: Sequence[Sequence[float]], *, name: str = "", depth: int = 0) -> list[Row]:
    """Return spans of a role: `seconds[rank][step]`, each from the first second of the run on."""
    return [
        (role, rank, step, phase, name, depth, BEGIN + step * SECOND, int(value * SECOND))
        for rank, values in enumerate(seconds)
        for step, value in enumerate(values, 1)
    ]


def series(name: str, values: Sequence[float], *, role: str = "driver", rank: int = 0) -> Readings:
    """Return a series with a value for each step from 1 on, a second apart."""
    n = len(values)
    return Readings(
        name=name,
        role=role,
        rank=rank,
        step=np.arange(1, n + 1),
        time=BEGIN + SECOND * np.arange(1, n + 1),
        value=np.asarray(values, float),
    )


def evidence(
    rows: Sequence[Row] = (),
    *readings: Readings,
    capture: CaptureFacts | None = None,
    knobs: Mapping[str, Any] | None = None,
    recorded: tuple[Any, ...] = (),
) -> Evidence:
    """Return it all as evidence."""
    return Evidence(spans=phase_spans(rows), readings=readings, capture=capture, knobs=knobs or {}, recorded=recorded)


def even(num_steps: int = 8, **phases: float) -> list[Mapping[str, float]]:
    """Return steps that are all alike."""
    return [phases] * num_steps
