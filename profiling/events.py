"""One JSON object a line: the progress of a run, the same for every trainer.

Every event has `kind`, `attempt`, `step`, `role`, `rank` and `t` (wall clock, Unix ns). What else it carries stands
with the function that makes it. docs/develop/protocol.md is the written form. Numbers that are not finite travel as the
strings "NaN", "Infinity" and "-Infinity", because JSON has no word for them and a diverged loss must stay visible.
"""

import json
import math
import os
import time
from collections.abc import Mapping
from typing import Any, Literal, TypedDict

from profiling.memory_marks import Memory

Kind = Literal["metric", "span", "system", "log", "sample", "artifact", "capture", "state", "note"]
PEAKS = ("resident_peak", "device_peak", "device_reserved_peak")
"""The peaks of a span's memory, as fields of Memory and as keys of the event."""
KINDS: tuple[Kind, ...] = ("metric", "span", "system", "log", "sample", "artifact", "capture", "state", "note")


class Event(TypedDict, total=False):
    """The union of what events carry; `kind` decides which keys are there."""

    kind: Kind
    attempt: int
    step: int
    role: str
    rank: int
    t: int
    values: dict[str, float | str]  # metric, system: name -> value
    phase: str  # span
    start: int  # span: Unix ns
    duration: int  # span: ns
    memory: dict[str, list[int] | int]  # span: bytes at its begin and end, and the most in between
    depth: int  # span: 0 = a phase of the step, 1.. = details inside it
    name: str  # span detail name; artifact name
    stream: str  # log: stdout | stderr
    lines: list[str]  # log
    prompt: str  # sample
    completion: str
    expected: str
    reward: float | str
    rewards: dict[str, float | str]
    tokens: int
    group: int
    index: int
    is_eval: bool
    path: str  # artifact: relative to the run directory
    size: int  # artifact: bytes
    sha256: str
    artifact: str  # artifact: its type: checkpoint | model | tensorboard | trace | log
    meta: dict[str, Any]
    state: str  # state: loading | ready | training | evaluating | saving | done | failed
    cause: dict[str, Any]
    text: str  # note
    capture: str  # capture: its id


def encode_number(value: float) -> float | str:
    """Return `value`, or its name where JSON has no number for it; float() reads both."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")


def metric(
    values: Mapping[str, float], *, attempt: int, step: int, role: str = "driver", rank: int = 0, t: int | None = None
) -> Event:
    """Return the metrics of one step: names of jobs.catalog.metrics mapped to their values."""
    return _event("metric", attempt, step, role, rank, t, values={k: encode_number(v) for k, v in values.items()})


def system(
    values: Mapping[str, float], *, attempt: int, step: int = -1, role: str, rank: int = 0, t: int | None = None
) -> Event:
    """Return readings of a node or process (names end in their unit: `memory_bytes`, `cpu_percent`)."""
    return _event("system", attempt, step, role, rank, t, values={k: encode_number(v) for k, v in values.items()})


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
    memory: Memory | None = None,
) -> Event:
    """Return one stretch of a lane: `start` in Unix ns and `duration` in ns, of a phase of profiling.phases.

    `memory`, where it was measured, becomes {"resident": [begin, end], "device": [begin, end], "resident_peak": most,
    "device_peak": most, "device_reserved_peak": most} in bytes; what was not measured is left out.
    """
    held: dict[str, list[int] | int] = {}
    if memory is not None:
        held["resident"] = [memory.resident_begin, memory.resident_end]
        if memory.device_begin >= 0:
            held["device"] = [memory.device_begin, memory.device_end]
        peaks = {name: getattr(memory, name) for name in PEAKS}
        held |= {name: peak for name, peak in peaks.items() if peak >= 0}
    return _event(
        "span",
        attempt,
        step,
        role,
        rank,
        start + duration,
        phase=phase,
        start=start,
        duration=duration,
        depth=depth,
        name=name,
        **({"memory": held} if held else {}),
    )


def log(lines: list[str], *, attempt: int, role: str, rank: int = 0, stream: str = "stdout", step: int = -1) -> Event:
    """Return log lines of one role and rank, without line ends."""
    return _event("log", attempt, step, role, rank, None, stream=stream, lines=lines)


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
) -> Event:
    """Return one completion; `group` numbers the prompt in its step, `index` the sample in its group."""
    return _event(
        "sample",
        attempt,
        step,
        "driver",
        0,
        None,
        group=group,
        index=index,
        prompt=prompt,
        completion=completion,
        expected=expected,
        reward=encode_number(reward),
        rewards={name: encode_number(value) for name, value in rewards.items()},
        tokens=tokens,
        is_eval=is_eval,
    )


def artifact(
    name: str,
    *,
    artifact: str,
    path: str,
    attempt: int,
    step: int = -1,
    size: int = 0,
    sha256: str = "",
    meta: Mapping[str, Any] | None = None,
) -> Event:
    """Return that a file or folder is ready at `path` (relative to the run directory)."""
    return _event(
        "artifact",
        attempt,
        step,
        "driver",
        0,
        None,
        name=name,
        artifact=artifact,
        path=path,
        size=size,
        sha256=sha256,
        meta=dict(meta or {}),
    )


def capture(
    capture: str, state: str, *, attempt: int, step: int = -1, text: str = "", meta: Mapping[str, Any] | None = None
) -> Event:
    """Return that a capture has moved to `state` (profiling.captures.state); with `failed`, `text` is the reason."""
    return _event(
        "capture", attempt, step, "driver", 0, None, capture=capture, state=state, text=text, meta=dict(meta or {})
    )


def state(state: str, *, attempt: int, step: int = -1, cause: Mapping[str, Any] | None = None, text: str = "") -> Event:
    """Return what the trainer is doing as a whole: loading, ready, training, evaluating, saving, done, failed."""
    return _event("state", attempt, step, "driver", 0, None, state=state, cause=dict(cause or {}), text=text)


def note(text: str, *, attempt: int, step: int = -1, meta: Mapping[str, Any] | None = None) -> Event:
    """Return a remark for the run's list of events (a knob changed, a checkpoint was saved)."""
    return _event("note", attempt, step, "driver", 0, None, text=text, meta=dict(meta or {}))


def _event(kind: Kind, attempt: int, step: int, role: str, rank: int, t: int | None, **rest: Any) -> Event:
    head = {"kind": kind, "attempt": attempt, "step": step, "role": role, "rank": rank, "t": t or time.time_ns()}
    return Event(**head, **rest)  # type: ignore[typeddict-item]  # `rest` holds the fields of the kind


def to_line(event: Event) -> bytes:
    """Return the event as one line of JSON, line end included."""
    return json.dumps(event, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode() + b"\n"


class EventLog:
    """Append events to `events.jsonl`, the write-ahead log of a run. The driver is its only writer.

    Each call is one `write` on an O_APPEND descriptor, so that a reader never sees half a batch except after a crash,
    when the torn last line is to be ignored.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def write(self, *events: Event) -> None:
        """Append the events; raises OSError when the disk is full."""
        if events:
            data = b"".join(map(to_line, events))
            while data:
                data = data[os.write(self._fd, data) :]

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)
