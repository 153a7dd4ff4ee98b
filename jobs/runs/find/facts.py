"""What lists can be filtered and sorted by, read off a run's row. No database."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from jobs.catalog.metric import current_name
from jobs.runs.find.fields import BY_ALGORITHM

MAX_TEXT = 200
Key = tuple[str, str]  # kind and name of a RunKey
Fact = tuple[float | None, str | None]  # a number, or a text


@dataclass(frozen=True, slots=True, kw_only=True)
class RunValues:
    """The columns of a run that lists look for, and the name of its author ("" for none)."""

    id: str
    name: str
    note: str
    tags: list[str]
    spec: Mapping[str, Any]
    latest_values: Mapping[str, Any]
    step: int
    state: str
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    study_id: str | None
    author: str = field(default="")


def text_of(run: RunValues) -> str:
    """Return what words are looked for in, in lower case."""
    parts = (run.id, run.name, _in(run.spec, "model", "id"), run.author, *run.tags, run.note)
    return "\n".join(part for part in parts if part).lower()


def facts_of(run: RunValues, *, now: datetime) -> dict[Key, Fact]:
    """Return every value of the run by its key. What is no number and no text (NaN, lists) has no value."""
    facts: dict[Key, Fact] = {}
    named = (
        *((("field", name), value) for name, value in _fields(run, now)),
        *((("knob", name), _value(held)) for name, held in _mapping(run.spec.get("knobs")).items()),
        *((("metric", current_name(name)), value) for name, value in run.latest_values.items()),
        *((("tag", tag), 1) for tag in run.tags),
    )
    for (kind, name), value in named:
        fact = _fact(value)
        if fact is not None and not (kind == "metric" and fact[0] is None):
            facts[kind, name[:MAX_TEXT]] = fact
    return facts


def _fields(run: RunValues, now: datetime) -> Iterator[tuple[str, Any]]:
    algorithm = _in(run.spec, "algorithm")
    yield "name", run.name
    yield "state", run.state
    yield "algorithm", algorithm
    yield "model", _in(run.spec, "model", "id")
    yield "data", _in(run.spec, "data", "id")
    yield "trainer", _in(run.spec, "trainer", "name")
    yield "author", run.author
    yield "sweep", run.study_id
    yield "step", run.step
    yield "created", run.created_at.timestamp()
    # What waits was asked for last, so it stands with the newest.
    yield "started", (run.started_at or run.created_at).timestamp()
    if run.ended_at is not None:
        yield "ended", run.ended_at.timestamp()
    if run.started_at is not None:
        yield "duration", ((run.ended_at or now) - run.started_at).total_seconds()
    for name, metric_of in BY_ALGORITHM.items():
        value = run.latest_values.get(metric_of.get(algorithm, ""))
        yield name, None if isinstance(value, str) else value


def _fact(value: Any) -> Fact | None:
    if isinstance(value, bool):
        return None, str(value).lower()
    if isinstance(value, (int, float)):
        try:
            number = float(value)
        except OverflowError:
            return None
        return (number, None) if math.isfinite(number) else None
    return (None, value.lower()[:MAX_TEXT]) if isinstance(value, str) and value else None


def _in(spec: Mapping[str, Any], *path: str) -> str:
    """Return the text at this place of a spec, "" where there is none."""
    value: Any = spec
    for name in path:
        value = _mapping(value).get(name)
    return value if isinstance(value, str) else ""


def _value(held: Any) -> Any:
    return _mapping(held).get("value")


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
