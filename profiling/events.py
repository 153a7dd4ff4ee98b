"""One JSON object a line: the progress of a run, the same for every trainer.

Every event has `kind`, `attempt`, `step`, `role`, `rank` and `t` (wall clock, Unix ns). What else it carries stands
with the class of its kind. docs/develop/protocol.md is the written form. Numbers that are not finite travel as the
strings "NaN", "Infinity" and "-Infinity", because JSON has no word for them and a diverged loss must stay visible.
"""

import math
import os
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Literal, NotRequired, get_args

from annotated_types import Predicate
from pydantic import ConfigDict, Discriminator, FailFast, Field, GetCoreSchemaHandler, SkipValidation, TypeAdapter
from pydantic_core import CoreSchema, to_json
from pydantic_core.core_schema import custom_error_schema, literal_schema
from typing_extensions import TypedDict

from profiling.captures.capture import REPORTED
from profiling.memory_marks import MarkMemory
from profiling.phases import BY_KEY

Kind = Literal["metric", "span", "system", "log", "sample", "artifact", "capture", "state", "note"]
KINDS: tuple[Kind, ...] = get_args(Kind)
PEAKS = ("resident_peak", "device_peak", "device_reserved_peak")
"""The peaks of a span's memory, as fields of Memory and as keys of the event."""
MAX_TOKEN_LOGPROBS = 4096  # of one sample
MAX_INT32 = 2**31 - 1
MAX_INT64 = 2**63 - 1
FILE_NAME_CHARACTERS = "letters, digits and . _ + = @ -, in parts divided by /, no part beginning with a dot"

_FILE_NAME = re.compile(r"[A-Za-z0-9_+=@-][A-Za-z0-9._+=@-]*(/[A-Za-z0-9_+=@-][A-Za-z0-9._+=@-]*)*")


class Allowed:
    """Refuse what a type refuses with a phrase that says what is allowed; it completes "<value> is not ..."."""

    def __init__(self, phrase: str) -> None:
        self.phrase = phrase

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Return the type's own schema with the phrase as its only error."""
        return self.refusing(handler(source))

    def refusing(self, schema: CoreSchema) -> CoreSchema:
        """Return the schema with the phrase as its only error."""
        return custom_error_schema(schema, custom_error_type="allowed", custom_error_message=self.phrase)


class OneOf:
    """Allow these texts alone."""

    def __init__(self, names: Iterable[str]) -> None:
        self.names = tuple(names)

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Return the schema of these texts."""
        return Allowed(f"one of {', '.join(self.names)}").refusing(literal_schema(list(self.names)))


def is_file_name(name: str) -> bool:
    """Return True if `name` can name a file of a run; `<name>/content` is an address of the console."""
    return len(name) <= 255 and bool(_FILE_NAME.fullmatch(name)) and not f"/{name}".endswith("/content")


def is_inside(path: str) -> bool:
    """Return True if the path does not leave the folder that it starts from."""
    return not path.startswith("/") and ".." not in path.split("/")


Count = Annotated[int, Field(ge=0, le=MAX_INT32), Allowed("a whole number from 0")]
Text = Annotated[str, Allowed("a text")]
Word = Annotated[str, Field(min_length=1, max_length=20), Allowed("a text of 1 to 20 characters")]
Object = Annotated[dict[str, object], Allowed("a JSON object")]
Number = Annotated[
    float | Literal["NaN", "Infinity", "-Infinity"],
    Field(union_mode="left_to_right"),
    Allowed("a number; use one, or 'NaN', 'Infinity', '-Infinity'"),
]
Name = Annotated[
    str,
    Field(min_length=1, max_length=120, pattern="^[^,]*$"),
    Allowed("a text of 1 to 120 characters without a comma"),
]
Values = Annotated[dict[Name, Number], FailFast()]
TokenLogprobs = Annotated[
    list[Annotated[list[Number], Field(min_length=2, max_length=2)]],
    Field(max_length=MAX_TOKEN_LOGPROBS),
    Allowed(f"a list of at most {MAX_TOKEN_LOGPROBS} pairs: characters of the completion, log-probability"),
]
FileName = Annotated[
    str, Predicate(is_file_name), Allowed(f"the name of a file: {FILE_NAME_CHARACTERS}, at most 255 characters")
]
InsidePath = Annotated[
    str,
    Field(min_length=1, max_length=500),
    Predicate(is_inside),
    Allowed("a path of 1 to 500 characters inside the run directory"),
]


class Head(TypedDict):
    """What every event carries beside its `kind`."""

    attempt: NotRequired[SkipValidation[int]]  # the console compares it with the one that the token belongs to
    step: Annotated[int, Field(ge=-MAX_INT32, le=MAX_INT32), Allowed("a whole number")]
    role: Word
    rank: Count
    t: Annotated[int, Field(ge=1, le=MAX_INT64), Allowed("a time in Unix nanoseconds")]


class MetricEvent(Head):
    """The metrics of one step."""

    kind: Literal["metric"]
    values: Values


class SpanEvent(Head):
    """One stretch of a lane."""

    kind: Literal["span"]
    phase: Annotated[str, OneOf(BY_KEY)]
    start: Annotated[int, Field(ge=0, le=MAX_INT64), Allowed("a time in Unix nanoseconds")]
    duration: Annotated[int, Field(ge=0, le=MAX_INT64), Allowed("a number of nanoseconds from 0")]
    depth: NotRequired[
        Annotated[int, Field(ge=0, le=255), Allowed("a whole number from 0 to 255")]
    ]  # 0 = a phase of the step, 1.. = details inside it
    name: NotRequired[Annotated[str, Field(max_length=200), Allowed("a text of at most 200 characters")]]
    memory: NotRequired[SkipValidation[dict[str, list[int] | int]]]  # bytes; stays in the run's files
    is_told_later: NotRequired[
        Annotated[bool, Allowed("true or false")]
    ]  # told when its step was over: nothing follows from it about what runs now


class SystemEvent(Head):
    """Readings of a node or process."""

    kind: Literal["system"]
    values: Values


class LogEvent(Head):
    """Log lines of one role and rank."""

    kind: Literal["log"]
    stream: Annotated[str, OneOf(("stdout", "stderr"))]
    lines: Annotated[list[Text], FailFast()]


class SampleEvent(Head):
    """One completion."""

    kind: Literal["sample"]
    group: NotRequired[Count]
    index: NotRequired[Count]
    prompt: Text
    completion: Text
    expected: NotRequired[Text]
    reward: NotRequired[Number | None]
    rewards: NotRequired[Values]
    tokens: NotRequired[Count]
    is_eval: NotRequired[Annotated[bool, Allowed("true or false")]]
    token_logprobs: NotRequired[TokenLogprobs]


class ArtifactEvent(Head):
    """A file or folder that is ready."""

    kind: Literal["artifact"]
    name: FileName
    artifact: Word  # its type: checkpoint | model | tensorboard | trace | log
    path: InsidePath
    size: NotRequired[Annotated[int, Field(ge=0, le=MAX_INT64), Allowed("a number of bytes")]]
    sha256: NotRequired[Annotated[str, Field(max_length=64), Allowed("a text of 64 hexadecimal digits")]]
    meta: NotRequired[Object]


class CaptureEvent(Head):
    """A capture in a new state (profiling.captures.capture)."""

    kind: Literal["capture"]
    capture: Annotated[str, Field(min_length=1, max_length=16), Allowed("the id of a capture")]
    state: Annotated[str, OneOf(REPORTED)]
    text: NotRequired[Text]
    meta: NotRequired[Object]


class StateEvent(Head):
    """What the trainer is doing as a whole; of role `runner`, how the attempt ended."""

    kind: Literal["state"]
    state: Word
    cause: NotRequired[Object]  # the fields of Cause, as far as they are known
    meta: NotRequired[Object]
    text: NotRequired[Text]


class Cause(TypedDict, total=False):
    """Why an attempt ended, in `cause` of its terminal event."""

    side: str  # who has to do something about it: trainer | cluster | pitwall | user
    role: str
    rank: int
    step: int
    text: str
    log_line: str
    exit_code: int | None
    field: str  # what of the spec is to blame


class NoteEvent(Head):
    """A remark for the run's list of events."""

    kind: Literal["note"]
    text: Text
    meta: NotRequired[Object]


Event = Annotated[
    MetricEvent
    | SpanEvent
    | SystemEvent
    | LogEvent
    | SampleEvent
    | ArtifactEvent
    | CaptureEvent
    | StateEvent
    | NoteEvent,
    Discriminator("kind"),
]
EVENTS: TypeAdapter[list[Event]] = TypeAdapter(
    list[Event], config=ConfigDict(strict=True, extra="allow", defer_build=True)
)
"""The one schema of events. Fields that it does not know pass."""


def encode_number(value: float) -> Number:
    """Return `value`, or its name where JSON has no number for it; float() reads both."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")


def _encoded(values: Mapping[str, float]) -> dict[str, Number]:
    return {name: encode_number(value) for name, value in values.items()}


def _head(attempt: int, step: int, role: str = "driver", rank: int = 0, t: int | None = None) -> Head:
    return {"attempt": attempt, "step": step, "role": role, "rank": rank, "t": t or time.time_ns()}


def metric(
    values: Mapping[str, float], *, attempt: int, step: int, role: str = "driver", rank: int = 0, t: int | None = None
) -> MetricEvent:
    """Return the metrics of one step: names of jobs.catalog.metrics mapped to their values."""
    return {"kind": "metric", **_head(attempt, step, role, rank, t), "values": _encoded(values)}


def system(
    values: Mapping[str, float], *, attempt: int, step: int = -1, role: str, rank: int = 0, t: int | None = None
) -> SystemEvent:
    """Return readings of a node or process (names end in their unit: `memory_bytes`, `cpu_percent`)."""
    return {"kind": "system", **_head(attempt, step, role, rank, t), "values": _encoded(values)}


def span(
    phase: str,
    *,
    start: int,
    duration: int,
    attempt: int,
    step: int,
    role: str,
    rank: int = 0,
    depth: int = 0,
    name: str = "",
    memory: MarkMemory | None = None,
) -> SpanEvent:
    """Return one stretch of a lane: `start` in Unix ns and `duration` in ns, of a phase of profiling.phases.

    `memory`, where it was measured, becomes {"resident": [begin, end], "device": [begin, end], "resident_peak": most,
    "device_peak": most, "device_reserved_peak": most} in bytes; what was not measured is left out.
    """
    event: SpanEvent = {
        "kind": "span",
        "attempt": attempt,
        "step": step,
        "role": role,
        "rank": rank,
        "t": start + duration or time.time_ns(),
        "phase": phase,
        "start": start,
        "duration": duration,
        "depth": depth,
        "name": name,
    }
    if memory is not None:
        held: dict[str, list[int] | int] = {"resident": [memory.resident_begin, memory.resident_end]}
        if memory.device_begin >= 0:
            held["device"] = [memory.device_begin, memory.device_end]
        peaks = {name: getattr(memory, name) for name in PEAKS}
        event["memory"] = held | {name: peak for name, peak in peaks.items() if peak >= 0}
    return event


def log(
    lines: list[str], *, attempt: int, role: str, rank: int = 0, stream: str = "stdout", step: int = -1
) -> LogEvent:
    """Return log lines of one role and rank, without line ends."""
    return {"kind": "log", **_head(attempt, step, role, rank), "stream": stream, "lines": lines}


def sample(
    *,
    attempt: int,
    step: int,
    group: int,
    index: int,
    prompt: str,
    completion: str,
    expected: str,
    reward: float,
    rewards: Mapping[str, float],
    tokens: int,
    is_eval: bool = False,
    token_logprobs: Sequence[tuple[int, float]] = (),
) -> SampleEvent:
    """Return one completion; `group` numbers the prompt in its step, `index` the sample in its group.

    `token_logprobs`: for each token from the first on, as far as they are told, how many characters (Unicode) of the
    completion it wrote, and its log-probability (natural) where it was drawn.
    """
    event: SampleEvent = {
        "kind": "sample",
        "attempt": attempt,
        "step": step,
        "role": "driver",
        "rank": 0,
        "t": time.time_ns(),
        "group": group,
        "index": index,
        "prompt": prompt,
        "completion": completion,
        "expected": expected,
        "reward": encode_number(reward),
        "rewards": _encoded(rewards),
        "tokens": tokens,
        "is_eval": is_eval,
    }
    if token_logprobs:
        event["token_logprobs"] = [[characters, encode_number(logprob)] for characters, logprob in token_logprobs]
    return event


def artifact(
    name: str,
    *,
    artifact: str,
    path: str,
    attempt: int,
    step: int = -1,
    size: int = 0,
    sha256: str = "",
    meta: Mapping[str, object] | None = None,
) -> ArtifactEvent:
    """Return that a file or folder is ready at `path` (relative to the run directory)."""
    return {
        "kind": "artifact",
        **_head(attempt, step),
        "name": name,
        "artifact": artifact,
        "path": path,
        "size": size,
        "sha256": sha256,
        "meta": dict(meta or {}),
    }


def capture(
    capture: str, state: str, *, attempt: int, step: int = -1, text: str = "", meta: Mapping[str, object] | None = None
) -> CaptureEvent:
    """Return that a capture has moved to `state` (profiling.captures.capture); with `failed`, `text` is the reason."""
    return {
        "kind": "capture",
        **_head(attempt, step),
        "capture": capture,
        "state": state,
        "text": text,
        "meta": dict(meta or {}),
    }


def state(
    state: str, *, attempt: int, step: int = -1, cause: Mapping[str, object] | None = None, text: str = ""
) -> StateEvent:
    """Return what the trainer is doing as a whole: loading, ready, training, evaluating, saving, done, failed."""
    return {
        "kind": "state",
        "attempt": attempt,
        "step": step,
        "role": "driver",
        "rank": 0,
        "t": time.time_ns(),
        "state": state,
        "cause": dict(cause or {}),
        "text": text,
    }


def note(text: str, *, attempt: int, step: int = -1, meta: Mapping[str, object] | None = None) -> NoteEvent:
    """Return a remark for the run's list of events (a knob changed, a checkpoint was saved)."""
    return {"kind": "note", **_head(attempt, step), "text": text, "meta": dict(meta or {})}


def to_line(event: Event) -> bytes:
    """Return the event as one line of JSON, line end included.

    Raises: ValueError for what JSON has no form of; a number in `meta` that is not finite becomes its name.
    """
    return to_json(event, inf_nan_mode="strings") + b"\n"  # a fourth of the time that the json module takes


class EventLog:
    """Append events to `events.jsonl`, the write-ahead log of a run. The driver is its only writer.

    Each call is one `write` on an O_APPEND descriptor, so that a reader never sees half a batch except after a crash,
    when the torn last line is to be ignored.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def write(self, *events: Event) -> None:
        """Append the events; raises OSError when the disk is full."""
        self.write_lines(map(to_line, events))

    def write_lines(self, lines: Iterable[bytes]) -> None:
        """Append events that are lines already; raises OSError when the disk is full."""
        data = b"".join(lines)
        while data:
            data = data[os.write(self._fd, data) :]

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)
