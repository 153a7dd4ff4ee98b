"""What a run of the engine told, as evidence for diagnosis, straight from its events and the files it recorded."""

import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from profiling.evidence import Evidence, Readings, RecordedTrace, phase_spans
from profiling.trace.importing import import_trace
from profiling.trace.store import Store
from tests.jobs.engine.conftest import EndedRun


def evidence_of(run: EndedRun, *, knobs: Mapping[str, Any] | None = None) -> Evidence:
    """Return spans, readings and recorded traces of a finished run."""
    spans = phase_spans(
        (e["role"], e["rank"], e["step"], e["phase"], e["name"], e["depth"], e["start"], e["duration"])
        for e in run.of("span")
    )
    return Evidence(
        spans=spans,
        readings=tuple(_readings([*run.of("metric"), *run.of("system")])),
        recorded=tuple(_recorded(run)),
        knobs=knobs or {},
        profiled=tuple(sorted(set(_profiled(run)))),
    )


def _profiled(run: EndedRun) -> Iterable[tuple[int, int]]:
    for event in run.of("artifact"):
        if event["meta"].get("capture"):
            first = event["meta"]["first_step"]
            yield first, first + event["meta"]["num_steps"] - 1


def _readings(events: Iterable[dict[str, Any]]) -> Iterable[Readings]:
    points: dict[tuple[str, str, int], list[tuple[int, int, float]]] = {}
    for event in events:
        for name, value in event["values"].items():
            key = (name, event["role"], event["rank"])
            points.setdefault(key, []).append((event["step"], event["t"], float(value)))
    for (name, role, rank), rows in points.items():
        step, time, value = (np.array(column) for column in zip(*rows, strict=True))
        yield Readings(name=name, role=role, rank=rank, step=step, time=time, value=value.astype(float))


def _recorded(run: EndedRun) -> Iterable[RecordedTrace]:
    folder = Path(tempfile.mkdtemp(prefix="pw-stores-"))
    for number, event in enumerate(run.of("artifact")):
        if event["meta"].get("capture"):
            target = folder / f"{number}.duckdb"
            import_trace(run.run_dir / event["path"], target)
            yield RecordedTrace(store=Store(target), role=event["meta"]["role"], rank=event["meta"]["rank"])
