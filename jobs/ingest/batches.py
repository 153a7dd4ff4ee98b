"""Checks what a runner ships: a malformed batch is refused here, before it can reach the stream."""

import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import orjson

from profiling.captures.state import REPORTED
from profiling.events import KINDS
from profiling.phases import BY_KEY

MAX_EVENTS = 2000
MAX_BODY_BYTES = 2 << 20  # the runner cuts at 1 MiB of events; the envelope and one overlong event come on top
MAX_LINE_CHARS = 16_384
MAX_DEPTH = 100
MAX_INT32 = 2**31 - 1
MAX_INT64 = 2**63 - 1

_NUL = re.compile(rb"(?<!\\)((?:\\\\)*)\\u0000")
_NUMBER_NAMES = ("NaN", "Infinity", "-Infinity")


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
    answer: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A checked batch; number 0 is a heartbeat. `events` is their JSON list, as it goes on the stream."""

    number: int
    num_events: int
    events: bytes
    answered: tuple[AnsweredCommand, ...]


def parse_batch(body: bytes, *, attempt: int) -> Batch:
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
    problems = {i: p for i, event in enumerate(events) if (p := _event_problem(event, attempt))}
    if problems:
        sentences = [f"events[{i}].{text}" for i, text in list(problems.items())[:5]]
        raise BatchInvalid(sentences, tuple(problems))
    return Batch(number=number, num_events=len(events), events=_encoded(events), answered=_answered(raw))


def _encoded(events: list[Any]) -> bytes:
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


def _answered(raw: dict[str, Any]) -> tuple[AnsweredCommand, ...]:
    items = raw.get("answered", [])
    if not isinstance(items, list):
        raise BatchInvalid(["answered: must be a list of {number, answer}."])
    found = []
    for i, item in enumerate(items):
        if not isinstance(item, dict) or not _is_int(item.get("number"), 0, MAX_INT64):
            raise BatchInvalid([f"answered[{i}].number: must be the number of a command."])
        answer = item.get("answer")
        if _is_deep(answer):
            raise BatchInvalid([f"answered[{i}].answer: is nested more than {MAX_DEPTH} levels deep."])
        found.append(
            AnsweredCommand(number=item["number"], answer=answer if isinstance(answer, dict) else {"answer": answer})
        )
    return tuple(found)


def _event_problem(event: Any, attempt: int) -> str:
    """Return what is wrong with the event ("field: sentence"), "" if nothing."""
    if not isinstance(event, dict):
        return "kind: an event must be a JSON object."
    kind = event.get("kind")
    if kind not in _CHECKS:
        return f"kind: {_shown(kind)} is not one of {', '.join(KINDS)}."
    if event.get("attempt", attempt) != attempt:
        return f"attempt: {_shown(event['attempt'])} is not {attempt}, the attempt this token belongs to."
    if not _is_int(event.get("step"), -MAX_INT32, MAX_INT32):
        return f"step: {_shown(event.get('step'))} is not a whole number."
    if not _is_text(event.get("role"), 1, 20):
        return f"role: {_shown(event.get('role'))} must be a text of 1 to 20 characters."
    if not _is_int(event.get("rank"), 0, MAX_INT32):
        return f"rank: {_shown(event.get('rank'))} is not a whole number from 0."
    if not _is_int(event.get("t"), 1, MAX_INT64):
        return f"t: {_shown(event.get('t'))} is not a time in Unix nanoseconds."
    return _CHECKS[kind](event)


def _values(event: dict[str, Any]) -> str:
    values = event.get("values")
    if not isinstance(values, dict):
        return "values: must map names to numbers."
    for name, value in values.items():
        if not 1 <= len(name) <= 120 or "," in name:
            return f"values: the name {_shown(name)} must have 1 to 120 characters and no comma."
        if isinstance(value, bool) or not (isinstance(value, int | float) or value in _NUMBER_NAMES):
            return f"values.{name}: {_shown(value)} is not a number; use one, or {', '.join(map(repr, _NUMBER_NAMES))}."
        if isinstance(value, int) and abs(value) > 2**1023:
            return f"values.{name}: the number is too large."
    return ""


def _span(event: dict[str, Any]) -> str:
    if event.get("phase") not in BY_KEY:
        return f"phase: {_shown(event.get('phase'))} is not one of {', '.join(BY_KEY)}."
    if not _is_int(event.get("start"), 0, MAX_INT64):
        return f"start: {_shown(event.get('start'))} is not a time in Unix nanoseconds."
    if not _is_int(event.get("duration"), 0, MAX_INT64 - event["start"]):
        return f"duration: {_shown(event.get('duration'))} is not a number of nanoseconds from 0."
    if not _is_int(event.get("depth", 0), 0, 255):
        return f"depth: {_shown(event.get('depth'))} is not a whole number from 0 to 255."
    return "" if _is_text(event.get("name", ""), 0, 200) else "name: must be a text of at most 200 characters."


def _log(event: dict[str, Any]) -> str:
    if event.get("stream") not in ("stdout", "stderr"):
        return f"stream: {_shown(event.get('stream'))} is not one of stdout, stderr."
    lines = event.get("lines")
    if not isinstance(lines, list) or not all(isinstance(line, str) for line in lines):
        return "lines: must be a list of texts."
    whole = [part for line in lines for part in (line.split("\n") if "\n" in line else (line,))]
    event["lines"] = [x if len(x) <= MAX_LINE_CHARS else x[:MAX_LINE_CHARS] + " [line cut here]" for x in whole]
    return ""


def _sample(event: dict[str, Any]) -> str:
    for name in ("prompt", "completion"):
        if not isinstance(event.get(name), str):
            return f"{name}: must be a text."
    if not isinstance(event.get("expected", ""), str):
        return "expected: must be a text."
    for name in ("group", "index", "tokens"):
        if not _is_int(event.get(name, 0), 0, MAX_INT32):
            return f"{name}: {_shown(event.get(name))} is not a whole number from 0."
    reward = event.get("reward")
    if reward is not None and (problem := _values({"values": {"reward": reward}})):
        return problem.replace("values.", "", 1)
    if not isinstance(event.get("is_eval", False), bool):
        return "is_eval: must be true or false."
    return _values({"values": event.get("rewards", {})}).replace("values", "rewards")


def _artifact(event: dict[str, Any]) -> str:
    if (problem := name_problem(event.get("name"))) or not _is_text(event.get("artifact"), 1, 20):
        return (
            f"name: {problem}" if problem else f"artifact: {_shown(event.get('artifact'))} is not a type of artifact."
        )
    path = event.get("path")
    if not _is_text(path, 1, 500) or str(path).startswith("/") or ".." in str(path).split("/"):
        return f"path: {_shown(path)} must lie inside the run directory."
    if not _is_int(event.get("size", 0), 0, MAX_INT64) or not _is_text(event.get("sha256", ""), 0, 64):
        return "size: must be a number of bytes, and sha256 a text of 64 hexadecimal digits."
    return "" if isinstance(event.get("meta", {}), dict) else "meta: must be a JSON object."


def _capture(event: dict[str, Any]) -> str:
    if not _is_text(event.get("capture"), 1, 16):
        return f"capture: {_shown(event.get('capture'))} is not the id of a capture."
    if event.get("state") not in REPORTED:
        return f"state: {_shown(event.get('state'))} is not one of {', '.join(REPORTED)}."
    if not isinstance(event.get("text", ""), str):
        return "text: must be a text."
    return "" if isinstance(event.get("meta", {}), dict) else "meta: must be a JSON object."


def _state(event: dict[str, Any]) -> str:
    if not _is_text(event.get("state"), 1, 20):
        return f"state: {_shown(event.get('state'))} is not a state."
    if event["role"] == "runner" and event["state"] not in ("finished", "failed", "stopped"):
        return f"state: {_shown(event['state'])} does not end an attempt; use finished, failed or stopped."
    for name in ("cause", "meta"):
        if not isinstance(event.get(name, {}), dict):
            return f"{name}: must be a JSON object."
    # Pages show these. A terminal event is too dear to be refused for them: other things become text, other numbers go.
    cause, meta = event.get("cause", {}), event.get("meta", {})
    for name in ("side", "text", "role", "log_line"):
        if not isinstance(cause.get(name, ""), str):
            cause[name] = _shown(cause[name])
    for where, name in ((cause, "rank"), (cause, "step"), (meta, "processes_left"), (meta, "device_bytes_left")):
        if not _is_int(where.get(name, 0), -1, MAX_INT64):
            del where[name]
    if not isinstance(meta.get("nodes_unchecked", []), list):
        del meta["nodes_unchecked"]
    return "" if isinstance(event.get("text", ""), str) else "text: must be a text."


def _note(event: dict[str, Any]) -> str:
    if not isinstance(event.get("text"), str):
        return "text: must be a text."
    return "" if isinstance(event.get("meta", {}), dict) else "meta: must be a JSON object."


_CHECKS: dict[object, Callable[[dict[str, Any]], str]] = {
    "metric": _values,
    "system": _values,
    "span": _span,
    "log": _log,
    "sample": _sample,
    "artifact": _artifact,
    "capture": _capture,
    "state": _state,
    "note": _note,
}

_NAME = re.compile(r"[A-Za-z0-9_+=@-][A-Za-z0-9._+=@-]*(/[A-Za-z0-9_+=@-][A-Za-z0-9._+=@-]*)*")


def name_problem(name: object) -> str:
    """Return why `name` cannot name a file of a run, "" if it can."""
    if isinstance(name, str) and len(name) <= 255 and _NAME.fullmatch(name) and not f"/{name}".endswith("/content"):
        return ""
    allowed = (
        "letters, digits and . _ + = @ -, in parts divided by /, no part beginning with a dot, at most 255 characters"
    )
    return f"{_shown(name)} cannot name a file; use {allowed}."


def _is_int(value: object, low: int, high: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def _is_text(value: object, low: int, high: int) -> bool:
    return isinstance(value, str) and low <= len(value) <= high


def _shown(value: object) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else text[:57] + "..."
