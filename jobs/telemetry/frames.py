"""Frames: the events of one batch as columns, encoded once as the very JSON text that browsers receive.

A frame is both the message of docs/develop/protocol.md section 5 and the log that chunks are made of, so it keeps every
number at full precision. Nothing here touches the database.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

Lane = tuple[str, int]  # role, rank


@dataclass(frozen=True, slots=True, kw_only=True)
class LogBlock:
    """Consecutive lines of one role, rank and stream; `first_line` counts from 0 within the attempt."""

    role: str
    rank: int
    stream: str
    first_line: int
    lines: Sequence[str]


def encode_frame(*, seq: int, attempt: int, events: Sequence[Mapping[str, Any]], logs: Sequence[LogBlock]) -> bytes:
    """Return the frame's JSON text. `logs` are the events' lines with their places, which only ingest knows."""
    by_kind: dict[str, list[Mapping[str, Any]]] = {}
    for event in events:
        by_kind.setdefault(event["kind"], []).append(event)
    return orjson.dumps(
        {
            "type": "frame",
            "seq": seq,
            "attempt": attempt,
            "metrics": _columns(by_kind.get("metric", ()), has_steps=True),
            "spans": _spans(by_kind.get("span", ())),
            "system": _columns(by_kind.get("system", ()), has_steps=False),
            "logs": [
                {"role": b.role, "rank": b.rank, "stream": b.stream, "first_line": b.first_line, "lines": list(b.lines)}
                for b in logs
            ],
            "samples": _sample_counts(by_kind.get("sample", ())),
            "notes": [{"t": str(e["t"]), "step": e["step"], "text": e["text"]} for e in by_kind.get("note", ())],
            "states": [
                {"t": str(e["t"]), "role": e["role"], "state": e["state"], "text": e.get("text", "")}
                for e in by_kind.get("state", ())
            ],
            "artifacts": [
                {"name": e["name"], "type": e["artifact"], "step": e["step"]} for e in by_kind.get("artifact", ())
            ],
            "captures": [
                {"capture": e["capture"], "state": e["state"], "text": e.get("text", "")}
                for e in by_kind.get("capture", ())
            ],
        }
    )


def decode_frame(payload: bytes | memoryview) -> dict[str, Any]:
    """Return the frame as it was encoded; numbers that are not finite stay the strings that stand for them."""
    return orjson.loads(payload)


def _lanes(events: Iterable[Mapping[str, Any]]) -> dict[Lane, list[Mapping[str, Any]]]:
    lanes: dict[Lane, list[Mapping[str, Any]]] = {}
    for event in events:
        lanes.setdefault((event["role"], event["rank"]), []).append(event)
    return lanes


def _columns(events: Iterable[Mapping[str, Any]], *, has_steps: bool) -> list[dict[str, Any]]:
    found = []
    for (role, rank), rows in _lanes(events).items():
        values: dict[str, list[Any]] = {}
        for i, row in enumerate(rows):
            for name, value in row["values"].items():
                column = values.get(name)
                if column is None:
                    column = values[name] = [None] * len(rows)
                column[i] = value
        lane: dict[str, Any] = {"role": role, "rank": rank}
        if has_steps:
            lane["steps"] = [row["step"] for row in rows]
        found.append({**lane, "t": [str(row["t"]) for row in rows], "values": values})
    return found


def _spans(events: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
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


def _sample_counts(events: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    counts: dict[tuple[int, bool], int] = {}
    for event in events:
        key = (event["step"], event.get("is_eval", False))
        counts[key] = counts.get(key, 0) + 1
    return [{"step": step, "is_eval": is_eval, "count": count} for (step, is_eval), count in counts.items()]
