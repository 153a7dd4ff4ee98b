"""Captures of a run by the built-in trainer: which begins and ends when, on its workers, and its files on the way here.

The loop calls `before_step` and `after_step`; between them the workers record (profiling.captures.recording). A capture
by time begins and ends in the middle of a step: a thread of the driver looks for it while the loop waits for workers,
and holds no lock that the loop needs while it waits for them itself. What goes wrong with a capture is reported as its
failure, and never reaches training.

Files come in pieces, through Ray: nodes share no file system. A worker answers beside its calls of the training
(CAPTURES), so a piece costs training a few milliseconds at most.

A run that ends leaves a capture open whose files are not all here: workers that are gone may have left some, and the
runner looks for them (jobs/runner/captures/recovery.py).
"""

import contextlib
import hashlib
import math
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import ray
from ray.exceptions import RaySystemError

from jobs.engine.command_inbox import CommandInbox
from jobs.engine.reporting.run_report import RunReport
from jobs.engine.workers.actor import CAPTURES
from jobs.engine.workers.worker import GONE, Worker
from jobs.engine.workers.worker_group import WorkerGroup
from profiling.captures.capture import (
    BUSY,
    CannotRecord,
    CaptureReport,
    CaptureRequest,
    CaptureWindow,
    State,
    TrackedCapture,
    announcement,
    final_path,
    missing_text,
    parse_request,
    within,
)
from profiling.config import TOOLS
from profiling.config import Device as DeviceName
from profiling.recorders.recorder import select_tool

ASK_SECONDS = 30.0
LOOK_SECONDS = 0.2
FINISH_SECONDS = 60.0
TOOL_SECONDS = 150.0  # nsys writes its report before it lets go
FAILED_SECONDS = 20.0  # when the run has failed: for workers that live to end a recording, and again to bring its files
PIECE_BYTES = 4 << 20
POLL_SECONDS = 0.3
ANSWER_SECONDS = 1800.0  # a worker that holds Python's lock for long does not answer
REMOVAL_SECONDS = 15.0


@dataclass(slots=True)
class StepTimes:
    """The steps of the run: the one under way, or the last one, and how many seconds each took."""

    step: int = 0
    seconds: dict[int, float] = field(default_factory=dict)

    def of_capture(self, request: CaptureRequest) -> dict[str, Any]:
        """Return how long the recorded steps took, and how long others near them."""
        seconds = dict(self.seconds)  # the loop goes on with it
        recorded = [s for n, s in sorted(seconds.items()) if request.first_step <= n <= request.last_step]
        near = sorted(
            (n for n in seconds if n > 1 and not request.first_step <= n <= request.last_step),
            key=lambda n: min(abs(n - request.first_step), abs(n - request.last_step)),
        )[:6]
        others = sorted(seconds[n] for n in near)
        return {
            "step_seconds": [round(s, 4) for s in recorded],
            "neighbor_step_seconds": round(others[len(others) // 2], 4) if others else None,
        }


class NotFetched(RuntimeError):
    """A worker's file is not here; the sentence says why."""


class EngineCapture(TrackedCapture):
    """A capture on `workers`.

    `problems` says of a worker why it has no file, `ends_at` in monotonic seconds when a capture by time is to end.
    """

    def __init__(
        self,
        request: CaptureRequest,
        *,
        workers: Sequence[Worker],
        steps: StepTimes,
        report: CaptureReport,
        run_dir: Path,
    ) -> None:
        self._workers, self._steps, self._run_dir = list(workers), steps, run_dir
        self.problems: dict[str, str] = {}
        self.ends_at = math.inf
        self._start_seconds = self._stop_seconds = 0.0
        self._cut = ""  # why it was ended early
        self._fetcher: threading.Thread | None = None
        self._no_time_left = threading.Event()
        super().__init__(request, report=report, step=steps.step, workers=[w.name for w in workers], tool=request.tool)

    def start(self) -> None:
        """Begin on all workers: the capture is `starting`, and is `recording` then, or has failed."""
        begin = time.perf_counter()
        is_beside = self.request.seconds > 0
        tool, name, what = self.request.tool, self.request.capture, self.request.what
        references = [
            (w, _method(w.actor.start_recording, is_beside).remote(tool, name, is_beside=is_beside, what=what))
            for w in self._workers
        ]
        deadline = time.monotonic() + TOOL_SECONDS
        for worker, reference in references:
            try:
                problem = ray.get(reference, timeout=max(0.1, deadline - time.monotonic()))
            except Exception as error:
                problem = _problem_of(worker, error)
                _method(worker.actor.stop_recording, is_beside).remote()  # if it begins after all, nobody would end it
            if problem:
                self.problems[worker.name] = problem
        self._workers = [w for w in self._workers if w.name not in self.problems]
        self._start_seconds = time.perf_counter() - begin
        step = max(1, self._steps.step)
        if not self._workers:
            self.move("fail", step=step, text=missing_text(self.problems))
            return
        if is_beside:  # the loop has gone on meanwhile
            self.request = self.request.starting_at(step)
        self.move(
            "record",
            step=step,
            text=self._not_recorded,
            workers=[w.name for w in self._workers],
            missing=dict(self.problems),
            tool=tool,
            first_step=self.request.first_step,
            num_steps=self.request.num_steps,
            seconds=self.request.seconds,
        )

    def stop(self, *, cut: str = "") -> None:
        """End the recording on all workers; from here on their files are fetched beside the steps.

        `cut` says why it ends early, in a run that has failed. What workers that are gone left is the runner's to find.
        Who comes second, while a worker does not let go, does nothing.
        """
        step = self._steps.step
        if not self.move("stop", step=step):
            return
        begin = time.perf_counter()
        is_beside = self.request.seconds > 0 or bool(cut)  # the call under way may never end
        references = [(w, _method(w.actor.stop_recording, is_beside).remote()) for w in self._workers]
        recorded: list[tuple[Worker, str]] = []
        is_left = bool(cut)
        deadline = time.monotonic() + (FAILED_SECONDS if cut else TOOL_SECONDS)
        for worker, reference in references:
            try:
                paths, problem = ray.get(reference, timeout=max(0.1, deadline - time.monotonic()))
            except GONE:
                paths, problem, is_left = [], "", True
            except Exception as error:
                paths, problem = [], _problem_of(worker, error)
            if problem:
                self.problems[worker.name] = problem
            recorded += [(worker, path) for path in paths]
        self._stop_seconds = time.perf_counter() - begin
        if not recorded and not is_left:
            self.move("fail", step=step, text=missing_text(self.problems))
            return
        is_short = not self.request.seconds and step < self.request.last_step
        self._cut = cut or (f"The run ended after step {step}." if is_short else "")
        self.request = self.request.ending_at(step)
        self.move("write", step=step, **self._facts())
        self._fetcher = threading.Thread(
            target=self._fetch_all, args=(recorded, is_left), name=f"capture {self.request.capture}", daemon=True
        )
        self._fetcher.start()

    def wait(self, seconds: float) -> None:
        """Wait for its files for so long. Then nothing more is fetched or reported: the runner goes on from there."""
        if self._fetcher is not None:
            self._fetcher.join(seconds)
            with self.lock:
                self._no_time_left.set()

    @property
    def _not_recorded(self) -> str:
        return f"Not recorded: {missing_text(self.problems)}" if self.problems else ""

    def _facts(self) -> dict[str, Any]:
        stood_still = {"start_seconds": round(self._start_seconds, 3), "stop_seconds": round(self._stop_seconds, 3)}
        facts = {
            "first_step": self.request.first_step,
            "num_steps": self.request.num_steps,
            "missing": dict(self.problems),
            "overhead": stood_still | self._steps.of_capture(self.request),
        }
        return facts | ({"truncated": self._cut} if self._cut else {})

    def _fetch_all(self, recorded: Sequence[tuple[Worker, str]], is_left: bool) -> None:
        """Bring the files into the run directory, announce each, and report that the capture is being imported.

        Where workers are gone nothing is reported of the capture as a whole: the runner does, once it has looked what
        they have left.
        """
        removals: list[Any] = []
        for worker, path in recorded:
            try:
                self._fetch(worker, path)
                removals.append(worker.actor.remove_recording.options(concurrency_group=CAPTURES).remote(path))
            except GONE:
                is_left = True
            except Exception as error:  # whatever it is, it is the capture's affair alone
                text = str(error) if isinstance(error, NotFetched) else f"{type(error).__name__}: {error}"
                self.problems[worker.name] = text.strip().splitlines()[0]
        with self.lock:
            if self._no_time_left.is_set():
                return
            step, num_files = self.request.last_step, len(removals)
            if num_files and not is_left:
                self.move("collect", step=step, text=self._not_recorded, num_files=num_files, **self._facts())
            elif not is_left:
                self.move("fail", step=step, text=missing_text(self.problems))
        if removals:
            # Before the run ends its workers; what is left then is whoever's who cleans up. The driver may have left
            # Ray meanwhile: then nobody waits for this any more.
            with contextlib.suppress(RaySystemError):
                ray.wait(removals, num_returns=len(removals), timeout=REMOVAL_SECONDS)

    def _fetch(self, worker: Worker, path: str) -> None:
        """Bring one file and announce it. Raises: NotFetched; whatever Ray and the disk say."""
        size, version = self._wait_until_written(worker, path)
        target = final_path(self._run_dir, self.request.capture, Path(path).name)
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_name(f"{target.name}.part")
        digest = hashlib.sha256()
        read = worker.actor.read_recording.options(concurrency_group=CAPTURES)
        try:
            with part.open("wb") as file:
                for offset in range(0, size, PIECE_BYTES):
                    self._check_time()
                    piece = ray.get(read.remote(path, offset, PIECE_BYTES), timeout=ANSWER_SECONDS)
                    digest.update(piece)
                    file.write(piece)
            if part.stat().st_size != size:
                raise NotFetched(f"{part.stat().st_size} of {size} bytes arrived.")
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)
        announced = announcement(
            CaptureWindow.of(self.request),
            target,
            role=worker.role,
            rank=worker.rank,
            tool_version=version,
            size=size,
            sha256=digest.hexdigest(),
        )
        with self.lock:
            if not self._no_time_left.is_set():
                self.report.artifact(**announced)

    def _wait_until_written(self, worker: Worker, path: str) -> tuple[int, str]:
        """Return size and maker of a file once it is written. Raises: NotFetched."""
        outcome = worker.actor.recording_outcome.options(concurrency_group=CAPTURES)
        while True:
            size, problem, version = ray.get(outcome.remote(path), timeout=ANSWER_SECONDS)
            if problem:
                raise NotFetched(problem)
            if size >= 0:
                return int(size), str(version)
            self._check_time()
            time.sleep(POLL_SECONDS)

    def _check_time(self) -> None:
        if self._no_time_left.is_set():
            raise NotFetched("there was no time left.")


class EngineCaptures:
    """All captures of an attempt; at most one records at a time."""

    def __init__(self, *, workers: WorkerGroup, report: RunReport, commands: CommandInbox, run_dir: Path) -> None:
        self._workers, self._report, self._commands, self._run_dir = workers, report, commands, run_dir
        self._captures: list[EngineCapture] = []
        self._steps = StepTimes()
        self._tools: dict[str, Mapping[str, str]] = {}  # worker -> tool -> "" if it is ready, else why not
        self._lock = threading.Lock()  # of who is armed and who begins; never held while workers are waited for
        self._is_over = threading.Event()
        self._watcher: threading.Thread | None = None

    def report_profilers(self) -> None:
        """Report once which tools can record on which worker: "" for ready, else why not."""
        references = {w.name: w.actor.profilers.remote() for w in self._workers.all()}
        for name, reference in references.items():
            try:
                self._tools[name] = ray.get(reference, timeout=ASK_SECONDS)
            except Exception as error:  # training finds out by itself if the worker is gone
                self._tools[name] = dict.fromkeys(TOOLS, f"{name} did not answer: {type(error).__name__}.")
        ready = {tool: sum(problems.get(tool) == "" for problems in self._tools.values()) for tool in TOOLS}
        text = f"Ready to record: torch on {ready['torch']} of {len(references)} workers, nsys on {ready['nsys']}"
        places = {w.name: w.node.name for w in self._workers.all()}
        self._report.note(text, step=0, profilers=self._tools, places=places)

    def watch(self) -> None:
        """From now on obey commands and take up captures by time at any moment, until `finish` or `abandon`."""
        self._watcher = threading.Thread(target=self._watch, name="captures", daemon=True)
        self._watcher.start()

    def before_step(self, step: int) -> None:
        """Obey what was asked since the last step, and start what begins with this one."""
        with self._lock:
            self._steps.step = step
            self._obey()
            starting = self._due(step)
        if starting is not None:
            starting.start()

    def after_step(self, step: int, *, seconds: float) -> None:
        """Stop what ends with this step, which took `seconds`."""
        self._steps.seconds[step] = seconds
        for capture in self._in(*BUSY):
            if not capture.request.seconds and step >= capture.request.last_step:
                capture.stop()

    def finish(self, step: int) -> None:
        """The run ends after `step`: keep what was recorded until here, and wait for files, within a bounded time."""
        self._end_watch(TOOL_SECONDS)
        self._steps.step = step
        for capture in self._in(*BUSY):
            capture.stop()
        with self._lock:
            self._obey()
        for capture in self._in("armed"):
            capture.move("fail", step=step, text=f"The run ended after step {step}, before {capture.request.steps}.")
        self._wait(FINISH_SECONDS)

    def abandon(self, why: str) -> None:
        """The run has failed: let workers that live end their recordings, and bring what there is. Never raises."""
        text = f"The run failed: {why}"
        try:
            self._end_watch(FAILED_SECONDS)
            for capture in self._in("armed", "starting"):
                capture.move("fail", text=text)
            for capture in self._in("recording"):
                capture.stop(cut=text)
            # it may be the one that ends a recording, and take longer than the first time
            self._end_watch(FAILED_SECONDS)
            self._wait(FAILED_SECONDS)
        except Exception as error:  # the failure of the run is what people must see
            self._report.say(f"Captures were left as they are: {type(error).__name__}: {error}")

    def _in(self, *states: State) -> list[EngineCapture]:
        return [capture for capture in self._captures if capture.state in states]

    def _watch(self) -> None:
        while not self._is_over.wait(LOOK_SECONDS):
            try:
                self._commands.poll()
                self._act()
            except Exception as error:  # a capture is never worth a run
                self._report.say(f"A capture was left as it is: {type(error).__name__}: {error}")

    def _act(self) -> None:
        """Obey commands; end the recording by time that is over or was ended, and begin one that was asked for."""
        with self._lock:
            self._obey()
        for capture in self._in(*BUSY):
            if capture.request.seconds and time.monotonic() >= capture.ends_at:
                capture.stop()
        with self._lock:
            starting = self._due_now()
        if starting is not None:
            starting.start()

    def _due(self, step: int) -> EngineCapture | None:
        """Return the capture whose first step this is; it is `starting` then, and others see that."""
        starting = None
        for capture in self._in("armed"):
            request, busy = capture.request, self._in(*BUSY)
            if request.seconds:
                continue  # the watching thread's
            if request.first_step == 0 and not busy:
                request = capture.request = request.starting_at(step)
            if request.first_step == 0 or request.first_step > step:
                continue
            if request.first_step < step:
                text = f"The run is at step {step}; {request.steps} {request.are} past."
                capture.move("fail", step=step, text=text)
            elif busy:
                other = busy[0].request
                then = "" if other.seconds else f" Ask for steps from {other.last_step + 1} on."
                capture.move("fail", step=step, text=f"{_busy(other)}{then}")
            else:
                capture.move("start")
                starting = capture
        return starting

    def _due_now(self) -> EngineCapture | None:
        """Return the capture by time that is to begin, as `_due` does."""
        starting = None
        for capture in self._in("armed"):
            if not capture.request.seconds:
                continue
            if busy := self._in(*BUSY):
                text = f"{_busy(busy[0].request)} Record once it has ended."
                capture.move("fail", step=self._steps.step, text=text)
                continue
            capture.request = capture.request.starting_at(max(1, self._steps.step))
            capture.ends_at = time.monotonic() + capture.request.seconds
            capture.move("start")
            starting = capture
        return starting

    def _obey(self) -> None:
        """Do what was asked of captures, in order."""
        for verb, payload in self._commands.take_captures():
            if verb == "profile":
                self._arm(payload)
                continue
            name = payload.get("capture")
            for capture in [one for one in self._captures if one.request.capture == name]:
                if verb == "finish" and capture.request.seconds:
                    capture.ends_at = 0.0
                    capture.move("withdraw", step=self._steps.step)  # if it has not begun
                elif verb == "withdraw" and not capture.move("withdraw", step=self._steps.step):
                    # what was reported before says how far it is
                    self._report.say(f"capture {name} is withdrawn too late: it is not armed any more")

    def _arm(self, payload: Mapping[str, Any]) -> None:
        step = self._steps.step
        try:
            request = parse_request(payload)
            names = within(request, {role: len(members) for role, members in self._workers.by_role.items()})
            request = self._with_tool(request, names)
        except CannotRecord as refused:
            if refused.capture:
                self._report.capture(refused.capture, "failed", step=step, text=str(refused))
            else:
                self._report.note(f"A command to record was passed over. {refused}", step=step)
            return
        workers = [w for w in self._workers.all() if w.name in names]
        self._captures.append(
            EngineCapture(request, workers=workers, steps=self._steps, report=self._report, run_dir=self._run_dir)
        )

    def _with_tool(self, request: CaptureRequest, names: list[str]) -> CaptureRequest:
        """Return the request with a tool: for what a spec asks for it is selected now that the workers have theirs.

        Raises: CannotRecord, saying what is missing.
        """
        if request.tool:
            return request
        device = cast(DeviceName, self._workers.device.name)
        selection = select_tool(
            request.what, device=device, workers={name: self._tools.get(name, {}) for name in names}
        )
        if selection.tool:
            return replace(request, tool=selection.tool)
        why = " ".join(f"{one.tool}: {' '.join(sorted(set(one.lacking.values())))}" for one in selection.passed)
        raise CannotRecord(f"No tool can show {request.what} on {device}. {why}".strip(), request.capture)

    def _end_watch(self, seconds: float) -> None:
        """Begin and end nothing by time any more, and wait for what is being begun or ended."""
        self._is_over.set()
        if self._watcher is not None:
            self._watcher.join(seconds)

    def _wait(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        for capture in self._captures:
            capture.wait(max(0.0, deadline - time.monotonic()))


def _method(method: Any, is_beside: bool) -> Any:
    """Return the method of an actor as it is called between its other calls, or beside them."""
    return method.options(concurrency_group=CAPTURES) if is_beside else method


def _problem_of(worker: Worker, error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{worker.role} rank {worker.rank} did not answer: {lines[0] if lines else type(error).__name__}"


def _busy(other: CaptureRequest) -> str:
    return f"Capture {other.capture} records {'already' if other.seconds else other.steps}."
