"""Checks what a runner ships: a malformed batch is refused here, before it can reach the stream."""

import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import orjson
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from profiling.events import (
    EVENTS,
    FILE_NAME_CHARACTERS,
    KINDS,
    MAX_INT64,
    Event,
    LogEvent,
    StateEvent,
    is_file_name,
)

MAX_EVENTS = 2000
MAX_BODY_BYTES = 2 << 20  # the runner cuts at 1 MiB of events; the envelope and one overlong event come on top
MAX_LINE_CHARS = 16_384
MAX_DEPTH = 100
ENDS = ("finished", "failed", "stopped")  # of an attempt, as its runner tells it

_NUL = re.compile(rb"(?<!\\)((?:\\\\)*)\\u0000")
_CONTAINERS = {"dict_type": "a JSON object", "list_type": "a list"}


class BatchInvalid(ValueError):
    """The body cannot be taken. `events` are the indices of those to leave out; empty if the whole body is wrong."""

    def __init__(self, sentences: list[str], events: tuple[int, ...] = ()) -> None:
        self.sentences = tuple(sentences)
        self.events = events
        super().__init__(" ".join(sentences))


@dataclass(frozen=True, slots=True, kw_only=True)
class AnsweredCommand:
    """A command that the runner has dealt with."""

    number: int
    answer: dict[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class EventBatch:
    """A checked batch; number 0 is a heartbeat. `events` is their JSON list, as it goes on the stream."""

    number: int
    num_events: int
    events: bytes
    answered: tuple[AnsweredCommand, ...]


def parse_batch(body: bytes, *, attempt: int) -> EventBatch:
    """Return the batch in the body of `POST events`.

    NUL characters, which PostgreSQL cannot keep, become U+FFFD. Raises: BatchInvalid, one sentence a problem.
    """
    if len(body) > MAX_BODY_BYTES:
        raise BatchInvalid([f"The body has {len(body)} bytes; a batch may have {MAX_BODY_BYTES}. Cut smaller batches."])
    raw = _decode(body)
    if not isinstance(raw, dict):
        raise BatchInvalid(["The body must be a JSON object with batch, events and answered."])
    number, events = raw.get("batch"), raw.get("events", [])
    if not isinstance(number, int) or not _is_int(number, 0, MAX_INT64):
        raise BatchInvalid([f"batch: {_shown(number)} is not a batch number; use 1, 2, 3..., or 0 for a heartbeat."])
    if not isinstance(events, list) or len(events) > MAX_EVENTS:
        raise BatchInvalid([f"events: must be a list of at most {MAX_EVENTS} events."])
    if number == 0 and events:
        raise BatchInvalid(["batch: a heartbeat (batch 0) carries no events; number this batch."])
    _check(events, attempt=attempt)
    for event in events:
        if event["kind"] == "log":
            _cut_lines(event)
        elif event["kind"] == "state":
            _tidy_cause(event)
    answered = _answered(raw.get("answered", []))
    return EventBatch(number=number, num_events=len(events), events=_encoded(events), answered=answered)


def _encoded(events: list[Event]) -> bytes:
    """Return the events' JSON. What is nested deeper than orjson writes (it reads four times as deep) is named."""
    try:
        return orjson.dumps(events)
    except orjson.JSONEncodeError:
        deep = tuple(i for i, event in enumerate(events) if _is_deep(event))
        sentences = [f"events[{i}]: is nested more than {MAX_DEPTH} levels deep." for i in deep[:5]]
        raise BatchInvalid(sentences or ["events: cannot be written as JSON."], deep) from None


def _is_deep(value: object) -> bool:
    """Return True if there are more than MAX_DEPTH objects and lists inside each other."""
    level = [value]
    for _ in range(MAX_DEPTH):
        inner: list[object] = []
        for item in level:
            inner += item.values() if isinstance(item, dict) else item if isinstance(item, list) else ()
        if not inner:
            return False
        level = inner
    return True


def _decode(body: bytes) -> Any:
    if b"\\u0000" in body:
        body = _NUL.sub(rb"\1\\ufffd", body)
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as strict:
        try:  # half of a surrogate pair, as a tokenizer may print it: Python's reader takes it, UTF-8 does not
            lenient = json.loads(body, parse_constant=_refuse_constant)
            return orjson.loads(json.dumps(lenient, ensure_ascii=False).encode("utf-8", "replace"))
        except (ValueError, RecursionError):
            raise BatchInvalid([f"The body is not JSON: {strict}."]) from strict


def _refuse_constant(name: str) -> float:
    raise ValueError(name)


def _answered(items: object) -> tuple[AnsweredCommand, ...]:
    if not isinstance(items, list):
        raise BatchInvalid(["answered: must be a list of {number, answer}."])
    commands = []
    for i, item in enumerate(items):
        if not isinstance(item, dict) or not _is_int(item.get("number"), 0, MAX_INT64):
            raise BatchInvalid([f"answered[{i}].number: must be the number of a command."])
        answer = item.get("answer")
        if _is_deep(answer):
            raise BatchInvalid([f"answered[{i}].answer: is nested more than {MAX_DEPTH} levels deep."])
        commands.append(
            AnsweredCommand(number=item["number"], answer=answer if isinstance(answer, dict) else {"answer": answer})
        )
    return tuple(commands)


def _check(events: list[Event], *, attempt: int) -> None:
    """Raise BatchInvalid unless these are events of the attempt: first by their schema, then by what no schema says.

    What the schema returns is left alone: it holds 3.0 for 3, and what passes is to pass unchanged.
    """
    problems: dict[int, Callable[[], str]] = {}
    try:
        EVENTS.validate_python(events)
    except ValidationError as refused:
        for error in refused.errors(include_url=False, include_context=False):
            problems.setdefault(int(error["loc"][0]), partial(_sentence, error))
    for i, event in enumerate(events):
        if i not in problems and (conflict := _conflict(event, attempt)):
            problems[i] = partial(str, conflict)
    if problems:
        indices = sorted(problems)
        raise BatchInvalid([f"events[{i}].{problems[i]()}" for i in indices[:5]], tuple(indices))


def _sentence(error: ErrorDetails) -> str:
    """Return what is wrong with an event ("field: sentence")."""
    (_, *place), shown = error["loc"], _shown(error["input"])
    if not place:
        event = error["input"]
        if not isinstance(event, dict):
            return f"kind: an event must be a JSON object, not {shown}."
        return f"kind: {_shown(event.get('kind'))} is not one of {', '.join(KINDS)}."
    field = ".".join(map(str, place[1:]))
    if error["type"] == "missing":
        return f"{field}: is missing; it must be {_allowed_at(error)}."
    allowed = _CONTAINERS.get(error["type"], error["msg"])
    if place[-1] == "[key]":
        return f"{place[1]}: the name {shown} is not {allowed}."
    return f"{field}: {shown} is not {allowed}."


def _allowed_at(missing: ErrorDetails) -> str:
    """Return what a field must be that is missing: what the schema says against null in its place."""
    try:
        EVENTS.validate_python([{**missing["input"], missing["loc"][-1]: None}])
    except ValidationError as refused:
        errors = (error for error in refused.errors(include_url=False) if error["loc"][1:] == missing["loc"][1:])
        return next(_CONTAINERS.get(error["type"], error["msg"]) for error in errors)
    return "there"


def _conflict(event: Event, attempt: int) -> str:
    """Return which of an event's fields does not go with another, or with the token ("field: sentence"), "" if none."""
    if event.get("attempt", attempt) != attempt:
        return f"attempt: {_shown(event['attempt'])} is not {attempt}, the attempt this token belongs to."
    if event["kind"] == "span" and event["duration"] > MAX_INT64 - event["start"]:
        return (
            f"duration: {event['duration']} is too long; it must end by {MAX_INT64} ns, and starts at {event['start']}."
        )
    if event["kind"] == "state" and event["role"] == "runner" and event["state"] not in ENDS:
        return f"state: {_shown(event['state'])} does not end an attempt; use finished, failed or stopped."
    return ""


def _cut_lines(event: LogEvent) -> None:
    whole = [part for line in event["lines"] for part in (line.split("\n") if "\n" in line else (line,))]
    event["lines"] = [x if len(x) <= MAX_LINE_CHARS else x[:MAX_LINE_CHARS] + " [line cut here]" for x in whole]


def _tidy_cause(event: StateEvent) -> None:
    """Make what pages show of a state what they expect: other things become text, other numbers go.

    A terminal event is too dear to be refused for them.
    """
    cause, meta = event.get("cause", {}), event.get("meta", {})
    for name in ("side", "text", "role", "log_line"):
        if not isinstance(cause.get(name, ""), str):
            cause[name] = _shown(cause[name])
    for where, name in (
        (cause, "rank"),
        (cause, "step"),
        (cause, "checkpoint"),
        (meta, "processes_left"),
        (meta, "device_bytes_left"),
    ):
        if not _is_int(where.get(name, 0), -1, MAX_INT64):
            del where[name]
    if not isinstance(meta.get("nodes_unchecked", []), list):
        del meta["nodes_unchecked"]


def name_problem(name: str) -> str:
    """Return why `name` cannot name a file of a run, "" if it can."""
    if is_file_name(name):
        return ""
    return f"{_shown(name)} cannot name a file; use {FILE_NAME_CHARACTERS}, at most 255 characters."


def _is_int(value: object, low: int, high: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def _shown(value: object) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    try:
        text = json.dumps(value, ensure_ascii=False, default=str)
    except RecursionError:  # orjson reads deeper than json writes
        return "a value nested too deep"
    return text if len(text) <= 60 else text[:57] + "..."
