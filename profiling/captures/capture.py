"""A capture: what is asked for, the states that it goes through, and its files. One for console, runner and engine.

What is asked for comes as the payload of a `profile` command (docs/develop/protocol.md, section 3) and is checked
against the workers there are. The states, what moves a capture, and where to are one table. The engine and the runner
hold each capture as a `TrackedCapture`, the console as a row, which it moves by the states that are reported.

Workers record to `traces/.recording/<capture>-<worker>...` on their node; what is handed over stands in
`traces/<capture>/<worker>...` on the driver's. A file that stands under its own name is whole, with one exception: a
report of nsys, which its tool looks at.
"""

import hashlib
import re
import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Protocol

from profiling.config import MAX_SECONDS, MAX_STEPS, TOOLS, WHATS, What
from profiling.recorders.recorder import load_tool, version_of

_PIECE_BYTES = 1 << 20


# -- what is asked for --


class CannotRecord(ValueError):
    """The request cannot be met; `capture` is its id, "" if it has none that can be told."""

    def __init__(self, text: str, capture: str = "") -> None:
        self.capture = capture
        super().__init__(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureRequest:
    """Record `num_steps` steps from `first_step` (0: the next one) on `roles` and `ranks`; () for all.

    `what` is to be seen; `tool` is "" where it is to be selected for that, once the workers are there.
    With `seconds` it is recorded from now on, in the middle of whatever runs, for so long or until it is ended.
    """

    capture: str
    tool: str
    first_step: int
    num_steps: int
    roles: tuple[str, ...]
    ranks: tuple[int, ...]
    seconds: float = 0.0
    what: What = "none"

    @property
    def last_step(self) -> int:
        """The last step that is recorded."""
        return self.first_step + self.num_steps - 1

    @property
    def steps(self) -> str:
        """The steps, for a sentence."""
        if self.first_step == 0:
            return "the steps that were asked for"
        return f"step {self.first_step}" if self.num_steps == 1 else f"steps {self.first_step} to {self.last_step}"

    @property
    def are(self) -> str:
        """The verb after `steps`."""
        return "is" if self.num_steps == 1 and self.first_step else "are"

    def starting_at(self, step: int) -> "CaptureRequest":
        """Return the request with its first step known."""
        return replace(self, first_step=step)

    def ending_at(self, step: int) -> "CaptureRequest":
        """Return the request as it was met, if the run ended after `step`."""
        touched = max(1, step - self.first_step + 1)
        return replace(self, num_steps=touched if self.seconds else min(self.num_steps, touched))


def parse_request(payload: Mapping[str, Any]) -> CaptureRequest:
    """Return what the payload of a `profile` command asks for. Raises: CannotRecord."""
    capture = payload.get("capture")
    if not isinstance(capture, str) or not re.fullmatch(r"[A-Za-z0-9-]{1,16}", capture):
        raise CannotRecord(f"{capture!r} is not the id of a capture: up to 16 letters, digits and -.")
    tool, first_step, num_steps = payload.get("tool"), payload.get("first_step", 0), payload.get("num_steps", 1)
    value = payload.get("what") or "none"
    what: What | None = next((one for one in ("none", *WHATS) if one == value), None)
    if what is None:
        raise CannotRecord(f"There is no {value!r} to see. Use {', '.join(WHATS[:-1])} or {WHATS[-1]}.", capture)
    if tool not in TOOLS and not (tool == "" and what != "none"):
        raise CannotRecord(f"There is no tool {tool!r}. Use {', '.join(TOOLS[:-1])} or {TOOLS[-1]}.", capture)
    if not _is_count(first_step, 0, 10**9):
        raise CannotRecord(f"first_step is {first_step!r}. Use a step from 1, or 0 for the next one.", capture)
    if not _is_count(num_steps, 1, MAX_STEPS):
        raise CannotRecord(f"num_steps is {num_steps!r}. Use 1 to {MAX_STEPS}.", capture)
    seconds = payload.get("seconds", 0)
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds <= MAX_SECONDS:
        raise CannotRecord(f"seconds is {seconds!r}. Use up to {MAX_SECONDS:.0f}, or 0 for whole steps.", capture)
    roles, ranks = payload.get("roles") or [], payload.get("ranks") or []
    if not isinstance(roles, list) or not all(isinstance(role, str) for role in roles):
        raise CannotRecord(f"roles is {roles!r}. Use a list of roles, or [] for all.", capture)
    if not isinstance(ranks, list) or not all(_is_count(rank, 0, 10**6) for rank in ranks):
        raise CannotRecord(f"ranks is {ranks!r}. Use a list of ranks from 0, or [] for all.", capture)
    return CaptureRequest(
        capture=capture,
        tool=tool,
        first_step=0 if seconds else first_step,
        num_steps=num_steps,
        roles=tuple(roles),
        ranks=tuple(ranks),
        seconds=float(seconds),
        what=what,
    )


def within(request: CaptureRequest, workers: Mapping[str, int]) -> list[str]:
    """Return the workers (`policy-0`) that the request means, of a run with so many ranks of each role.

    Raises: CannotRecord, naming the role or rank that there is not.
    """
    present = {role: ranks for role, ranks in workers.items() if ranks}
    roles = request.roles or tuple(present)
    for role in roles:
        if role == "driver":
            text = "The driver has no recording of its own; its phases are always told."
            raise CannotRecord(f"{text} Use {', '.join(present)}.", request.capture)
        if role not in present:
            raise CannotRecord(f"This run has no role {role!r}. Use {', '.join(present)}.", request.capture)
    most = max(present[role] for role in roles)
    for rank in request.ranks:
        if rank >= most:
            text = f"There is no rank {rank} of {', '.join(roles)}. Use 0 to {most - 1}."
            raise CannotRecord(text, request.capture)
    chosen = request.ranks or range(most)
    return [f"{role}-{rank}" for role in roles for rank in chosen if rank < present[role]]


def _is_count(value: object, low: int, high: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


# -- its states --

State = Literal["armed", "starting", "recording", "stopping", "writing", "importing", "ready", "failed", "withdrawn"]

Event = Literal["start", "record", "stop", "write", "collect", "complete", "fail", "withdraw"]

STATES: tuple[State, ...] = ("armed", "recording", "stopping", "writing", "importing", "ready")
"""As they are stored and sent, in order; `failed` takes the place of any but the last, `withdrawn` of the first.

armed: the trainer knows of it; recording: from its first step on; stopping: after its last one; writing: files are
being made on the nodes; importing: they are on their way to the console; ready: all are there, checksums right.
Between the first two it is `starting` while workers begin, which is not reported.
"""

OPEN: tuple[State, ...] = ("armed", "starting", "recording", "stopping", "writing", "importing")
ENDED: tuple[State, ...] = ("ready", "failed", "withdrawn")
"""Nothing follows these. withdrawn: somebody took it back before its first step; nothing was recorded."""

REPORTED: tuple[State, ...] = ("armed", "recording", "stopping", "writing", "importing", "failed", "withdrawn")
"""What a trainer or its runner may report. `ready` is the console's own: it alone knows what has arrived."""

BUSY: tuple[State, ...] = ("starting", "recording", "stopping")
"""Workers record, or are about to begin or end: a process takes one profiler at a time, so another capture waits."""

UNFINISHED: tuple[State, ...] = ("recording", "stopping", "writing")
"""Workers may have left files of such a capture when they are gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """Where an event leads, and from where. An event that was not reported is made up for by the next one."""

    before: tuple[State, ...]
    after: State


TRANSITIONS: Mapping[Event, Transition] = {
    "start": Transition(before=("armed",), after="starting"),
    "record": Transition(before=("armed", "starting"), after="recording"),
    "stop": Transition(before=("armed", "starting", "recording"), after="stopping"),
    "write": Transition(before=("armed", "starting", "recording", "stopping"), after="writing"),
    "collect": Transition(before=("armed", "starting", "recording", "stopping", "writing"), after="importing"),
    "complete": Transition(before=("importing",), after="ready"),
    "fail": Transition(before=OPEN, after="failed"),
    "withdraw": Transition(before=("armed",), after="withdrawn"),
}

_BY_STATE: Mapping[str, Event] = {transition.after: event for event, transition in TRANSITIONS.items()}


def next_state(state: str, event: Event) -> State | None:
    """Return the state after the event, None where it cannot follow: it came twice, late, or never should have."""
    transition = TRANSITIONS[event]
    return transition.after if state in transition.before else None


def event_of(reported: str) -> Event | None:
    """Return the event behind a reported state, None for `armed`, which is where a capture begins, and other words."""
    return _BY_STATE.get(reported)


class CaptureReport(Protocol):
    """Where a trainer's side reports captures and their files: the event log of the attempt."""

    def capture(self, capture: str, state: State, *, step: int, text: str = "", **meta: Any) -> object:
        """Report that a capture has moved on; `text` is the reason where it has failed."""

    def artifact(self, name: str, *, artifact: str, path: str, step: int, size: int, **meta: Any) -> object:
        """Report that a file is whole (`announcement`)."""


class TrackedCapture:
    """One capture on a trainer's side, armed at first. `move` is the only way from state to state, and reports each."""

    def __init__(self, request: CaptureRequest, *, report: CaptureReport, step: int, **meta: Any) -> None:
        self.request, self.report = request, report
        self.state: State = "armed"
        self.lock = threading.RLock()
        report.capture(request.capture, self.state, step=step, **meta)

    def move(self, event: Event, *, step: int = -1, text: str = "", **meta: Any) -> bool:
        """Follow an event; False, and nothing has happened, where it cannot follow: another thread was faster."""
        with self.lock:  # what is reported comes in the order of the states
            after = next_state(self.state, event)
            if after is None:
                return False
            self.state = after
            if after in REPORTED:
                self.report.capture(self.request.capture, after, step=step, text=text, **meta)
            return True

    @property
    def is_over(self) -> bool:
        """True once nothing more is to be done for it on this side."""
        return self.state == "importing" or self.state in ENDED


# -- its files --


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureWindow:
    """What a capture's files have in common: the tool, and the steps that it recorded."""

    capture: str
    tool: str
    first_step: int
    num_steps: int

    @classmethod
    def of(cls, request: CaptureRequest) -> "CaptureWindow":
        """Return what a request says of its files."""
        return cls(
            capture=request.capture, tool=request.tool, first_step=request.first_step, num_steps=request.num_steps
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftFile:
    """A file that was found in the folder of recordings; `problem` says why it is of no use, "" if it is whole."""

    size: int
    problem: str
    tool_version: str


def recordings(run_dir: Path) -> Path:
    """Return the folder in which a node's workers make their files."""
    return run_dir / "traces" / ".recording"


def leaving_sign(folder: Path, pid: int | str) -> Path:
    """Return the file that is there while a process that ends writes its recording into this folder."""
    return folder / f".leaving-{pid}"


def stem(capture: str, worker: str) -> str:
    """Return how the names of a worker's files begin while they are made."""
    return f"{capture}-{worker}"


def final_path(run_dir: Path, capture: str, name: str) -> Path:
    """Return where the file of that name, with its capture before the worker, stands once it can be handed over."""
    return run_dir / "traces" / capture / name.removeprefix(f"{capture}-")


def is_of(name: str, capture: str, worker: str) -> bool:
    """Return True if a file of that name was made by the worker, or by a process of its own (`vllm-0-worker1`)."""
    return name.startswith((f"{stem(capture, worker)}.", f"{stem(capture, worker)}-worker"))


def announcement(
    window: CaptureWindow, path: Path, *, role: str, rank: int, tool_version: str, size: int, sha256: str
) -> dict[str, Any]:
    """Return what an `artifact` event says of a capture's file at `path`, as the arguments of a report's `artifact`."""
    return {
        "name": f"{window.capture}-{path.name}",
        "artifact": "trace",
        "path": f"traces/{window.capture}/{path.name}",
        "step": window.first_step,
        "size": size,
        "capture": window.capture,
        "role": role,
        "rank": rank,
        "tool": window.tool,
        "tool_version": tool_version,
        "first_step": window.first_step,
        "num_steps": window.num_steps,
        "sha256": sha256,
    }


def missing_text(problems: Mapping[str, str]) -> str:
    """Return who has no file and why, for a sentence: each reason once, with all who have it."""
    by_reason: dict[str, list[str]] = {}
    for name, problem in sorted(problems.items()):
        by_reason.setdefault(problem, []).append(name)
    return " ".join(f"{', '.join(names)}: {reason}" for reason, names in by_reason.items())


def sha256_of(path: Path) -> str:
    """Return the checksum of a file, in hexadecimal digits. Raises: OSError."""
    digest = hashlib.sha256()
    with path.open("rb") as file:  # hashlib.file_digest is not in Python 3.10, which trainers may have
        while piece := file.read(_PIECE_BYTES):
            digest.update(piece)
    return digest.hexdigest()


def left(run_dir: Path, tools: Mapping[str, str], *, secrets: Collection[bytes]) -> dict[str, LeftFile]:
    """Return by name the files of captures (id -> tool) that workers left here; to be called when these are gone.

    Secrets are taken out of a file that its worker could not look through any more.
    """
    folder = recordings(run_dir)
    files: dict[str, LeftFile] = {}
    for capture, tool in tools.items():
        chosen = load_tool(tool)
        version = ""
        for name, problem in chosen.gather(folder, capture).items():
            files[name] = LeftFile(size=0, problem=problem, tool_version="")
        for path in sorted(folder.glob(f"{capture}-*{chosen.suffix}")):
            try:
                problem = chosen.problem_of_left(path, secrets)
                version = version or version_of(chosen)
                files[path.name] = LeftFile(size=path.stat().st_size, problem=problem, tool_version=version)
            except OSError as error:
                files[path.name] = LeftFile(
                    size=0, problem=f"The file cannot be read: {error.strerror}.", tool_version=""
                )
    return files
