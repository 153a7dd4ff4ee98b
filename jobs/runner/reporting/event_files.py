"""The files a run's events come from, read by byte ranges.

The same range of the same file always gives the same events. That is what lets the runner keep offsets instead of
content: a batch can be made again at any time, also by a restarted runner.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from jobs.runner.reporting.secrets import NOTHING_HIDDEN, SecretHiding
from profiling.events import KINDS, Head, LogEvent

MAX_EVENT_BYTES = 512 * 1024  # one event; what is larger stays in the file and a line says so
MAX_LINE_BYTES = 16 * 1024  # of a log; a longer line is shown as several
LOG_EVENT_BYTES = 64 * 1024  # of one log event


@dataclass(frozen=True, slots=True)
class EncodedEvent:
    """One event, encoded, and where in its file it ends."""

    data: bytes
    end: int


class Source(Protocol):
    """A growing file that gives events."""

    @property
    def name(self) -> str:
        """What the journal calls it."""
        ...

    @property
    def path(self) -> Path:
        """The file."""
        ...

    def pieces(self, data: bytes, *, start: int, t: int, is_whole: bool) -> Iterator[EncodedEvent]:
        """Yield the events of `data`, which stands at byte `start` of the file; `t` is the time of log lines (Unix ns).

        An unfinished last line is left for later, unless `is_whole` says that this is all there will be.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class EventSource:
    """A file with one event a line. A torn last line is never given."""

    name: str
    path: Path
    attempt: int
    secrets: SecretHiding = NOTHING_HIDDEN

    def pieces(self, data: bytes, *, start: int, t: int, is_whole: bool) -> Iterator[EncodedEvent]:  # noqa: ARG002
        """Yield the lines that are events; a line that is none gives a log line that says where it stands."""
        position = 0
        while (cut := data.find(b"\n", position)) >= 0:
            line = data[position:cut].strip()
            if line:
                problem = why_not_an_event(line)
                if problem:
                    text = f"Line at byte {start + position} of {self.path.name} is not shown: {problem}."
                    line = _log([text], attempt=self.attempt, role="runner", stream="stderr", t=t)
                yield EncodedEvent(self.secrets.event(line), start + cut + 1)
            position = cut + 1
        if len(data) - position > MAX_EVENT_BYTES * 2:  # a "line" without end: pass over what is there of it
            text = f"{len(data) - position} bytes without a line end at byte {start + position} of {self.path.name}."
            yield EncodedEvent(
                _log([text], attempt=self.attempt, role="runner", stream="stderr", t=t), start + len(data)
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class TextSource:
    """Plain lines of one role and rank."""

    name: str
    path: Path
    attempt: int
    role: str
    stream: str
    rank: int = 0
    secrets: SecretHiding = NOTHING_HIDDEN

    def pieces(self, data: bytes, *, start: int, t: int, is_whole: bool) -> Iterator[EncodedEvent]:
        """Yield log events of some dozens of lines each."""
        lines: list[str] = []
        size = 0
        end = position = 0
        while position < len(data):
            cut = data.find(b"\n", position, position + MAX_LINE_BYTES)
            if cut < 0:
                if len(data) - position < MAX_LINE_BYTES and not is_whole:
                    break
                cut, after = min(len(data), position + MAX_LINE_BYTES), min(len(data), position + MAX_LINE_BYTES)
            else:
                after = cut + 1
            lines.append(self.secrets.line(readable(data[position:cut])))
            size += cut - position
            end = position = after
            if size > LOG_EVENT_BYTES:
                yield EncodedEvent(self._event(lines, t), start + end)
                lines, size = [], 0
        if lines:
            yield EncodedEvent(self._event(lines, t), start + end)

    def _event(self, lines: list[str], t: int) -> bytes:
        return _log(lines, attempt=self.attempt, role=self.role, rank=self.rank, stream=self.stream, t=t)


def readable(raw: bytes) -> str:
    """Return a log line as text: what a progress bar wrote last, without bytes that no database takes."""
    return raw.rstrip(b"\r").rpartition(b"\r")[2].decode("utf-8", "replace").replace("\x00", "\ufffd")


def why_not_an_event(line: bytes) -> str:
    """Return why `line` cannot be shipped, or nothing if it can. The console would refuse a whole batch for it."""
    if len(line) > MAX_EVENT_BYTES:
        return f"{len(line)} bytes are more than {MAX_EVENT_BYTES}"
    try:
        event = json.loads(line, parse_constant=_refuse_constant)
        json.dumps(event, ensure_ascii=False).encode()  # refuses half a surrogate pair
    except (ValueError, RecursionError) as error:
        return f"it is not JSON ({error})"
    if not isinstance(event, dict) or event.get("kind") not in KINDS:
        return "it is not an event of a known kind"
    return ""


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _log(lines: list[str], *, attempt: int, role: str, stream: str, t: int, rank: int = 0) -> bytes:
    head: Head = {"attempt": attempt, "step": -1, "role": role, "rank": rank, "t": t}
    event: LogEvent = {"kind": "log", **head, "stream": stream, "lines": lines}
    return json.dumps(event, ensure_ascii=False, separators=(",", ":")).encode()
