"""Frames: the events of one batch as columns, encoded once as the very JSON text that browsers receive.

A frame is both the message of docs/develop/protocol.md section 5 and the log that chunks are made of, so it keeps every
number at full precision. Nothing here touches the database.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypedDict, TypeVar

import orjson

from profiling.events import Event, Head, MetricEvent, Number, SampleEvent, SpanEvent, SystemEvent

E = TypeVar("E", bound=Head)
Lane = tuple[str, int]  # role, rank


@dataclass(frozen=True, slots=True, kw_only=True)
class LogBlock:
    """Consecutive lines of one role, rank and stream; `first_line` counts from 0 within the attempt."""

    role: str
    rank: int
    stream: str
    first_line: int
    lines: Sequence[str]


class ReadingColumns(TypedDict):
    """Readings of one role and rank, an item an event; None: the event did not have this one. `t`: Unix ns as text."""

    role: str
    rank: int
    t: list[str]
    values: dict[str, list[Number | None]]


class MetricColumns(ReadingColumns):
    """Metrics of one role and rank, an item an event."""

    steps: list[int]


class SpanColumns(TypedDict):
    """Spans of one role and rank, an item an event; `start` is Unix ns as text."""

    role: str
    rank: int
    phase: list[str]
    name: list[str]
    start: list[str]
    duration: list[int]
    depth: list[int]
    step: list[int]


class FrameMessage(TypedDict):
    """A frame as it travels and lies (docs/develop/protocol.md, 5); its rows of logs, notes ... are only passed on."""

    type: Literal["frame"]
    seq: int
    attempt: int
    metrics: list[MetricColumns]
    spans: list[SpanColumns]
    system: list[ReadingColumns]
    logs: list[dict[str, object]]
    samples: list[dict[str, int]]
    notes: list[dict[str, object]]
    states: list[dict[str, str]]
    artifacts: list[dict[str, object]]
    captures: list[dict[str, str]]


def encode_frame(*, seq: int, attempt: int, events: Sequence[Event], logs: Sequence[LogBlock]) -> bytes:
    """Return the frame's JSON text. `logs` are the events' lines with their places, which only ingest knows."""
    frame: FrameMessage = {
        "type": "frame",
        "seq": seq,
        "attempt": attempt,
        "metrics": _metrics(e for e in events if e["kind"] == "metric"),
        "spans": _spans(e for e in events if e["kind"] == "span"),
        "system": _system(e for e in events if e["kind"] == "system"),
        "logs": [
            {"role": b.role, "rank": b.rank, "stream": b.stream, "first_line": b.first_line, "lines": list(b.lines)}
            for b in logs
        ],
        "samples": _sample_counts(e for e in events if e["kind"] == "sample"),
        "notes": [{"t": str(e["t"]), "step": e["step"], "text": e["text"]} for e in events if e["kind"] == "note"],
        "states": [
            {"t": str(e["t"]), "role": e["role"], "state": e["state"], "text": e.get("text", "")}
            for e in events
            if e["kind"] == "state"
        ],
        "artifacts": [
            {"name": e["name"], "type": e["artifact"], "step": e["step"]} for e in events if e["kind"] == "artifact"
        ],
        "captures": [
            {"capture": e["capture"], "state": e["state"], "text": e.get("text", "")}
            for e in events
            if e["kind"] == "capture"
        ],
    }
    return orjson.dumps(frame)


def decode_frame(payload: bytes | memoryview) -> FrameMessage:
    """Return the frame as it was encoded; numbers that are not finite stay the strings that stand for them."""
    return orjson.loads(payload)


def _metrics(events: Iterable[MetricEvent]) -> list[MetricColumns]:
    return [
        {
            "role": role,
            "rank": rank,
            "steps": [row["step"] for row in rows],
            "t": [str(row["t"]) for row in rows],
            "values": _values(rows),
        }
        for (role, rank), rows in _lanes(events).items()
    ]


def _system(events: Iterable[SystemEvent]) -> list[ReadingColumns]:
    return [
        {"role": role, "rank": rank, "t": [str(row["t"]) for row in rows], "values": _values(rows)}
        for (role, rank), rows in _lanes(events).items()
    ]


def _values(rows: Sequence[MetricEvent] | Sequence[SystemEvent]) -> dict[str, list[Number | None]]:
    values: dict[str, list[Number | None]] = {}
    for i, row in enumerate(rows):
        for name, value in row["values"].items():
            column = values.get(name)
            if column is None:
                column = values[name] = [None] * len(rows)
            column[i] = value
    return values


def _spans(events: Iterable[SpanEvent]) -> list[SpanColumns]:
    return [
        {
            "role": role,
            "rank": rank,
            "phase": [row["phase"] for row in rows],
            "name": [row.get("name", "") for row in rows],
            "start": [str(row["start"]) for row in rows],
            "duration": [row["duration"] for row in rows],
            "depth": [row.get("depth", 0) for row in rows],
            "step": [row["step"] for row in rows],
        }
        for (role, rank), rows in _lanes(events).items()
    ]


def _lanes(events: Iterable[E]) -> dict[Lane, list[E]]:
    lanes: dict[Lane, list[E]] = {}
    for event in events:
        lanes.setdefault((event["role"], event["rank"]), []).append(event)
    return lanes


def _sample_counts(events: Iterable[SampleEvent]) -> list[dict[str, int]]:
    counts: dict[tuple[int, bool], int] = {}
    for event in events:
        key = (event["step"], event.get("is_eval", False))
        counts[key] = counts.get(key, 0) + 1
    return [{"step": step, "is_eval": is_eval, "count": count} for (step, is_eval), count in counts.items()]
