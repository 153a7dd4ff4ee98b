"""Captures of a run: which steps are recorded on which workers, and where each capture is in its custody.

The loop asks `before_step` and `after_step`; between them the workers record (profiling.captures.recording). A capture
by time begins and ends in the middle of a step: a thread of the driver looks for it while the loop waits for workers,
and holds no lock that the loop needs while it waits for them itself. What goes wrong with a capture is said in its
custody, and never reaches training. Files are fetched beside the steps that follow (traces.py).

A run that ends leaves a capture open whose files are not all here: workers that are gone may have left some, and the
runner looks for them (jobs/runner/failures/recover_captures.py).
"""

import math
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import ray

from jobs.engine.captures.collector import Collector, RecordedFile
from jobs.engine.commands import Commands
from jobs.engine.reporting.report import Report
from jobs.engine.workers.actor import CAPTURES
from jobs.engine.workers.worker import GONE, Worker
from jobs.engine.workers.worker_group import WorkerGroup
from profiling.captures.files import missing_text
from profiling.captures.request import CaptureRefused, Request, parse_request, within
from profiling.captures.tool_selection import pick
from profiling.config import TOOLS
from profiling.config import Device as DeviceName

ASK_SECONDS = 30.0
LOOK_SECONDS = 0.2
TOOL_SECONDS = 150.0  # nsys writes its report before it lets go
FINISH_SECONDS = 60.0
FAILED_SECONDS = 20.0  # when the run has failed: for workers that live to end a recording, and again to bring its files


@dataclass(slots=True, kw_only=True)
class _Capture:
    request: Request
    workers: list[Worker]
    problems: dict[str, str] = field(default_factory=dict)  # worker -> why it has no file
    has_begun: bool = False
    is_ending: bool = False
    start_seconds: float = 0.0
    ends: float = math.inf  # time.monotonic(), of one by time


class Recording:
    """All captures of an attempt; at most one records at a time."""

    def __init__(self, *, workers: WorkerGroup, report: Report, commands: Commands, run_dir: Path) -> None:
        self._workers, self._report, self._commands = workers, report, commands
        self._run_dir = run_dir
        self._armed: list[_Capture] = []
        self._now: _Capture | None = None
        self._collectors: list[Collector] = []
        self._step_seconds: dict[int, float] = {}
        self._step = 0  # under way, or the last one
        self._ended: set[str] = set()
        self._told: dict[str, Mapping[str, str]] = {}  # worker -> what it said of each tool
        self._lock = threading.Lock()  # of what is armed and what records; never held while workers are waited for
        self._is_over = threading.Event()
        self._watcher: threading.Thread | None = None

    def watch(self) -> None:
        """From now on take up captures by time at any moment, until `finish` or `abandon`."""
        self._watcher = threading.Thread(target=self._watch, name="captures", daemon=True)
        self._watcher.start()

    def _watch(self) -> None:
        while not self._is_over.wait(LOOK_SECONDS):
            try:
                self._commands.poll()
                self._take_now()
            except Exception as error:  # a capture is never worth a run
                self._report.say(f"A capture was left as it is: {type(error).__name__}: {error}")

    def _take_now(self) -> None:
        """End the recording by time that is over or was ended, and begin one that was asked for."""
        self._ended.update(self._commands.take_endings())  # kept: one may come before its capture has begun
        now = self._now
        is_by_time = now is not None and now.request.seconds > 0
        if now is not None and is_by_time and (time.monotonic() >= now.ends or now.request.capture in self._ended):
            self._stop(now, self._step)
        with self._lock:
            starting = self._take_up()
        if starting is not None:
            self._start(starting, self._step)

    def _take_up(self) -> _Capture | None:
        """Answer those by time that were asked for, and return the one that is to begin; from here on it is `_now`."""
        for payload in self._commands.take_profiles_for_now():
            self._arm(payload, self._step)
        for capture in [one for one in self._armed if one.request.seconds]:
            self._armed.remove(capture)
            capture.request = capture.request.starting_at(max(1, self._step))
            if capture.request.capture in self._ended:
                self._report.capture(capture.request.capture, "withdrawn", step=self._step)
            elif self._now is None:
                capture.ends = time.monotonic() + capture.request.seconds
                self._now = capture
            else:
                self._fail(capture, f"{_busy(self._now.request)} Record once it has ended.", self._step)
        return now if (now := self._now) is not None and now.request.seconds and not now.has_begun else None

    def tell_profilers(self) -> None:
        """Tell once which tools can record on which worker: "" for ready, else why not."""
        references = {w.name: w.actor.profilers.remote() for w in self._workers.all()}
        found: dict[str, Mapping[str, str]] = {}
        for name, reference in references.items():
            try:
                found[name] = ray.get(reference, timeout=ASK_SECONDS)
            except Exception as error:  # training finds out by itself if the worker is gone
                found[name] = dict.fromkeys(TOOLS, f"{name} did not answer: {type(error).__name__}.")
        self._told = found
        ready = {tool: sum(problems.get(tool) == "" for problems in found.values()) for tool in TOOLS}
        text = f"Ready to record: torch on {ready['torch']} of {len(found)} workers, nsys on {ready['nsys']}"
        places = {w.name: w.place.name for w in self._workers.all()}
        self._report.note(text, step=0, profilers=found, places=places)

    def before_step(self, step: int) -> None:
        """Arm what was asked for since the last step, drop what was withdrawn, and start what begins with this one."""
        with self._lock:
            starting = self._due(step)
        if starting is not None:
            self._start(starting, step)

    def _due(self, step: int) -> _Capture | None:
        """Return the capture whose first step this is; from here on it is `_now`."""
        self._step = step
        self._take_commands(step)
        starting = None
        for capture in self._armed[:]:
            request = capture.request
            if request.seconds:
                continue  # the watching thread's
            if request.first_step == 0 and self._now is None:
                request = capture.request = request.starting_at(step)
            if request.first_step == 0 or request.first_step > step:
                continue
            self._armed.remove(capture)
            if request.first_step < step:
                self._fail(capture, f"The run is at step {step}; {request.steps} {request.are} past.", step)
            elif self._now is not None:
                other = self._now.request
                then = "" if other.seconds else f" Ask for steps from {other.last_step + 1} on."
                self._fail(capture, f"{_busy(other)}{then}", step)
            else:
                starting = self._now = capture
        return starting

    def after_step(self, step: int, *, seconds: float) -> None:
        """Stop what ends with this step, which took `seconds`."""
        self._step_seconds[step] = seconds
        now = self._now
        if now is not None and not now.request.seconds and step >= now.request.last_step:
            self._stop(now, step)

    def finish(self, step: int) -> None:
        """The run ends after `step`: keep what was recorded until here, and wait for files, within a bounded time."""
        self._end_watch(TOOL_SECONDS)
        if self._now is not None:
            self._stop(self._now, step)
        with self._lock:
            self._take_commands(step)
            for capture in self._armed:
                self._fail(capture, f"The run ended after step {step}, before {capture.request.steps}.", step)
            self._armed.clear()
        self._wait(FINISH_SECONDS)

    def abandon(self, why: str) -> None:
        """The run has failed: let workers that live end their recordings, and bring what there is. Never raises."""
        try:
            self._end_watch(FAILED_SECONDS)
            for capture in self._armed:
                self._fail(capture, f"The run failed: {why}", -1)
            self._armed.clear()
            now = self._now
            if now is not None and now.has_begun:
                self._stop(now, self._step, cut=f"The run failed: {why}")
            elif now is not None:
                self._fail(now, f"The run failed: {why}", -1)
            self._end_watch(
                FAILED_SECONDS
            )  # it may be the one that ends a recording, and take longer than the first time
            self._wait(FAILED_SECONDS)
        except Exception as error:  # the failure of the run is what people must see
            self._report.say(f"Captures were left as they are: {type(error).__name__}: {error}")

    def _end_watch(self, seconds: float) -> None:
        """Begin and end nothing by time any more, and wait for what is being begun or ended."""
        self._is_over.set()
        if self._watcher is not None:
            self._watcher.join(seconds)

    def _take_commands(self, step: int) -> None:
        for payload in self._commands.take_profiles():
            self._arm(payload, step)
        for withdrawn in self._commands.take_withdrawals():
            found = [capture for capture in self._armed if capture.request.capture == withdrawn]
            for capture in found:
                self._armed.remove(capture)
                self._report.capture(withdrawn, "withdrawn", step=step)
            if not found:  # what was told before says how far it is
                self._report.say(f"capture {withdrawn} is withdrawn too late: it is not armed any more")

    def _arm(self, payload: Mapping[str, Any], step: int) -> None:
        try:
            request = parse_request(payload)
        except CaptureRefused as refused:
            if refused.capture:
                self._report.capture(refused.capture, "failed", step=step, text=str(refused))
            else:
                self._report.note(f"A command to record was passed over. {refused}", step=step)
            return
        try:
            names = within(request, {role: len(members) for role, members in self._workers.by_role.items()})
            request = self._with_tool(request, names)
        except CaptureRefused as refused:
            self._report.capture(request.capture, "failed", step=step, text=str(refused))
            return
        workers = [w for w in self._workers.all() if w.name in names]
        self._armed.append(_Capture(request=request, workers=workers))
        self._report.capture(request.capture, "armed", step=step, workers=names, tool=request.tool)

    def _with_tool(self, request: Request, names: list[str]) -> Request:
        """Return the request with a tool: for what a spec asks for it is picked now that the workers have told theirs.

        Raises: CaptureRefused, saying what is missing.
        """
        if request.tool:
            return request
        device = cast(DeviceName, self._workers.device.name)
        found = pick(request.what, device=device, workers={name: self._told.get(name, {}) for name in names})
        if found.tool:
            return replace(request, tool=found.tool)
        why = " ".join(f"{one.tool}: {' '.join(sorted(set(one.lacking.values())))}" for one in found.passed)
        raise CaptureRefused(f"No tool can show {request.what} on {device}. {why}".strip(), request.capture)

    def _start(self, capture: _Capture, step: int) -> None:
        """Begin on all workers of the capture, which is `_now` already."""
        request = capture.request
        begin = time.perf_counter()
        is_beside = request.seconds > 0
        references = [
            (
                w,
                _method(w.actor.start_recording, is_beside).remote(
                    request.tool, request.capture, is_beside=is_beside, what=request.what
                ),
            )
            for w in capture.workers
        ]
        deadline = time.monotonic() + TOOL_SECONDS
        for worker, reference in references:
            try:
                problem = ray.get(reference, timeout=max(0.1, deadline - time.monotonic()))
            except Exception as error:
                problem = _told(worker, error)
                _method(worker.actor.stop_recording, is_beside).remote()  # if it begins after all, nobody would end it
            if problem:
                capture.problems[worker.name] = problem
        capture.workers = [w for w in capture.workers if w.name not in capture.problems]
        capture.start_seconds = time.perf_counter() - begin
        if not capture.workers:
            self._now = None
            self._fail(capture, missing_text(capture.problems), step)
            return
        if is_beside:  # the loop has gone on meanwhile
            step = max(1, self._step)
            request = capture.request = request.starting_at(step)
        capture.has_begun = True
        told = {
            "workers": [w.name for w in capture.workers],
            "missing": capture.problems,
            "tool": request.tool,
            "first_step": request.first_step,
            "num_steps": request.num_steps,
            "seconds": request.seconds,
        }
        text = f"Not recorded: {missing_text(capture.problems)}" if capture.problems else ""
        self._report.capture(request.capture, "recording", step=step, text=text, **told)

    def _stop(self, capture: _Capture, step: int, *, cut: str = "") -> None:
        """End the recording on all workers; from here on their files are fetched beside the steps.

        `cut` says why it ends early, in a run that has failed. What workers that are gone left is the runner's to find.
        Who comes second, while a worker does not let go, does nothing.
        """
        with self._lock:
            if capture.is_ending:
                return
            capture.is_ending = True
        request = capture.request
        self._report.capture(request.capture, "stopping", step=step)
        begin = time.perf_counter()
        is_beside = request.seconds > 0 or bool(cut)  # the call under way may never end
        references = [(w, _method(w.actor.stop_recording, is_beside).remote()) for w in capture.workers]
        recorded = []
        is_left = bool(cut)
        deadline = time.monotonic() + (FAILED_SECONDS if cut else TOOL_SECONDS)
        for worker, reference in references:
            try:
                paths, problem = ray.get(reference, timeout=max(0.1, deadline - time.monotonic()))
            except GONE:
                paths, problem, is_left = [], "", True
            except Exception as error:
                paths, problem = [], _told(worker, error)
            if problem:
                capture.problems[worker.name] = problem
            recorded += [RecordedFile(worker=worker, path=path) for path in paths]
        stop_seconds = time.perf_counter() - begin
        self._now = None
        if not recorded and not is_left:
            self._fail(capture, missing_text(capture.problems), step)
            return
        if not cut and not request.seconds and step < request.last_step:
            cut = f"The run ended after step {step}."
        request = request.ending_at(step)

        def meta() -> dict[str, Any]:
            return {
                "first_step": request.first_step,
                "num_steps": request.num_steps,
                "missing": capture.problems,
                "overhead": self._overhead(request, capture.start_seconds, stop_seconds),
            } | ({"truncated": cut} if cut else {})

        self._report.capture(request.capture, "writing", step=step, **meta())
        collector = Collector(
            request=request,
            recorded=recorded,
            run_dir=self._run_dir,
            report=self._report,
            problems=capture.problems,
            meta=meta,
            is_left=is_left,
        )
        self._collectors.append(collector)
        collector.start()

    def _overhead(self, request: Request, start_seconds: float, stop_seconds: float) -> dict[str, Any]:
        """Return what recording cost: seconds that the run stood still, and the steps' seconds beside others'."""
        seconds = dict(self._step_seconds)  # the loop goes on with it
        recorded = [s for n, s in sorted(seconds.items()) if request.first_step <= n <= request.last_step]
        near = sorted(
            (n for n in seconds if n > 1 and not request.first_step <= n <= request.last_step),
            key=lambda n: min(abs(n - request.first_step), abs(n - request.last_step)),
        )[:6]
        others = sorted(seconds[n] for n in near)
        return {
            "start_seconds": round(start_seconds, 3),
            "stop_seconds": round(stop_seconds, 3),
            "step_seconds": [round(s, 4) for s in recorded],
            "neighbor_step_seconds": round(others[len(others) // 2], 4) if others else None,
        }

    def _wait(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        for collector in self._collectors:
            collector.join(max(0.0, deadline - time.monotonic()))
            collector.leave()
        self._collectors.clear()

    def _fail(self, capture: _Capture, why: str, step: int) -> None:
        self._report.capture(capture.request.capture, "failed", step=step, text=why)


def _method(method: Any, is_beside: bool) -> Any:
    """Return the method of an actor as it is called between its other calls, or beside them."""
    return method.options(concurrency_group=CAPTURES) if is_beside else method


def _busy(other: Request) -> str:
    return f"Capture {other.capture} records {'already' if other.seconds else other.steps}."


def _told(worker: Worker, error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{worker.role} rank {worker.rank} did not answer: {lines[0] if lines else type(error).__name__}"
