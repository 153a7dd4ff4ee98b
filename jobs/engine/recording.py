"""Captures of a run: which steps are recorded on which workers, and where each capture is in its custody.

The loop asks `before_step` and `after_step`; between them the workers record (profiling.recording). A capture by time
begins and ends in the middle of a step: a thread of the driver looks for it while the loop waits for workers. What goes
wrong with a capture is said in its custody, and never reaches training. Files are fetched beside the steps that follow
(traces.py).
"""

import math
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ray

from jobs.engine.actor import CAPTURES
from jobs.engine.commands import Commands
from jobs.engine.crew import Crew
from jobs.engine.report import Report
from jobs.engine.traces import Collector, Recorded
from jobs.engine.worker import Worker
from profiling.capture_request import CaptureRefused, Request, parse_request, within
from profiling.config import TOOLS

ASK_SECONDS = 30.0
LOOK_SECONDS = 0.2
TOOL_SECONDS = 150.0  # nsys writes its report before it lets go
FINISH_SECONDS = 60.0
FAILED_SECONDS = 10.0  # for files of captures that were complete when the run failed


@dataclass(slots=True, kw_only=True)
class _Capture:
    request: Request
    workers: list[Worker]
    problems: dict[str, str] = field(default_factory=dict)  # worker -> why it has no file
    start_seconds: float = 0.0
    ends: float = math.inf  # time.monotonic(), of one by time


class Recording:
    """All captures of an attempt; at most one records at a time."""

    def __init__(self, *, crew: Crew, report: Report, commands: Commands, run_dir: Path) -> None:
        self._crew, self._report, self._commands = crew, report, commands
        self._folder = run_dir / "traces"
        self._armed: list[_Capture] = []
        self._now: _Capture | None = None
        self._collectors: list[Collector] = []
        self._step_seconds: dict[int, float] = {}
        self._step = 0  # under way, or the last one
        self._ended: set[str] = set()
        self._lock = threading.RLock()
        self._is_over = threading.Event()

    def watch(self) -> None:
        """From now on take up captures by time at any moment, until `finish` or `abandon`."""
        threading.Thread(target=self._watch, name="captures", daemon=True).start()

    def _watch(self) -> None:
        while not self._is_over.wait(LOOK_SECONDS):
            try:
                self._commands.poll()
                with self._lock:
                    if not self._is_over.is_set():
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
        for payload in self._commands.take_profiles_for_now():
            self._arm(payload, self._step)
        for capture in [one for one in self._armed if one.request.seconds]:
            self._armed.remove(capture)
            capture.request = capture.request.starting_at(max(1, self._step))
            if capture.request.capture in self._ended:
                self._report.capture(capture.request.capture, "withdrawn", step=self._step)
            elif self._now is None:
                capture.ends = time.monotonic() + capture.request.seconds
                self._start(capture, self._step)
            else:
                self._fail(capture, f"{_busy(self._now.request)} Record once it has ended.", self._step)

    def tell_profilers(self) -> None:
        """Tell once which tools can record on which worker: "" for ready, else why not."""
        references = {w.name: w.actor.profilers.remote() for w in self._crew.all()}
        found: dict[str, Mapping[str, str]] = {}
        for name, reference in references.items():
            try:
                found[name] = ray.get(reference, timeout=ASK_SECONDS)
            except Exception as error:  # training finds out by itself if the worker is gone
                found[name] = dict.fromkeys(TOOLS, f"{name} did not answer: {type(error).__name__}.")
        ready = {tool: sum(problems.get(tool) == "" for problems in found.values()) for tool in TOOLS}
        text = f"Ready to record: torch on {ready['torch']} of {len(found)} workers, nsys on {ready['nsys']}"
        places = {w.name: w.place.name for w in self._crew.all()}
        self._report.note(text, step=0, profilers=found, places=places)

    def before_step(self, step: int) -> None:
        """Arm what was asked for since the last step, drop what was withdrawn, and start what begins with this one."""
        with self._lock:
            self._before_step(step)

    def _before_step(self, step: int) -> None:
        self._step = step
        self._take_commands(step)
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
                self._start(capture, step)

    def after_step(self, step: int, *, seconds: float) -> None:
        """Stop what ends with this step, which took `seconds`."""
        with self._lock:
            self._step_seconds[step] = seconds
            now = self._now
            if now is not None and not now.request.seconds and step >= now.request.last_step:
                self._stop(now, step)

    def finish(self, step: int) -> None:
        """The run ends after `step`: keep what was recorded until here, and wait for files, within a bounded time."""
        with self._lock:
            self._is_over.set()
            if self._now is not None:
                self._stop(self._now, step)
            self._take_commands(step)
        for capture in self._armed:
            self._fail(capture, f"The run ended after step {step}, before {capture.request.steps}.", step)
        self._armed.clear()
        self._wait(FINISH_SECONDS, "The run ended before its files were there.")

    def abandon(self, why: str) -> None:
        """The run has failed: say so in what is under way. Never raises."""
        self._is_over.set()
        is_mine = self._lock.acquire(timeout=FAILED_SECONDS)  # the watching thread may be in the middle of a start
        try:
            for capture in ([self._now] if self._now is not None else []) + self._armed:
                self._fail(capture, f"The run failed: {why}", -1)
            self._now, self._armed = None, []
            self._wait(FAILED_SECONDS, "The run failed before its files were there.")
        except Exception as error:  # the failure of the run is what people must see
            self._report.say(f"Captures were left as they are: {type(error).__name__}: {error}")
        finally:
            if is_mine:
                self._lock.release()

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
            names = within(request, {role: len(members) for role, members in self._crew.workers.items()})
        except CaptureRefused as refused:
            self._report.capture(request.capture, "failed", step=step, text=str(refused))
            return
        workers = [w for w in self._crew.all() if w.name in names]
        self._armed.append(_Capture(request=request, workers=workers))
        self._report.capture(request.capture, "armed", step=step, workers=names)

    def _start(self, capture: _Capture, step: int) -> None:
        request = capture.request
        begin = time.perf_counter()
        is_beside = request.seconds > 0
        references = [
            (w, _method(w.actor.start_recording, is_beside).remote(request.tool, request.capture, is_beside=is_beside))
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
            self._fail(capture, _sentence(capture.problems), step)
            return
        self._now = capture
        text = f"Not recorded: {_sentence(capture.problems)}" if capture.problems else ""
        self._report.capture(
            request.capture, "recording", step=step, text=text, missing=capture.problems, workers=_names(capture)
        )

    def _stop(self, capture: _Capture, step: int) -> None:
        """End the recording on all workers; from here on their files are fetched beside the steps."""
        self._now = None
        request = capture.request
        self._report.capture(request.capture, "stopping", step=step)
        begin = time.perf_counter()
        is_beside = request.seconds > 0
        references = [(w, _method(w.actor.stop_recording, is_beside).remote()) for w in capture.workers]
        recorded = []
        deadline = time.monotonic() + TOOL_SECONDS
        for worker, reference in references:
            try:
                paths, problem = ray.get(reference, timeout=max(0.1, deadline - time.monotonic()))
            except Exception as error:
                paths, problem = [], _told(worker, error)
            if problem:
                capture.problems[worker.name] = problem
            recorded += [Recorded(worker=worker, path=path) for path in paths]
        stop_seconds = time.perf_counter() - begin
        if not recorded:
            self._fail(capture, _sentence(capture.problems), step)
            return
        request = request.ending_at(step)
        self._report.capture(request.capture, "writing", step=step)
        collector = Collector(
            request=request,
            recorded=recorded,
            folder=self._folder / request.capture,
            report=self._report,
            problems=capture.problems,
            overhead=lambda: self._overhead(request, capture.start_seconds, stop_seconds),
        )
        self._collectors.append(collector)
        collector.start()

    def _overhead(self, request: Request, start_seconds: float, stop_seconds: float) -> dict[str, Any]:
        """Return what recording cost: seconds that the run stood still, and the steps' seconds beside others'."""
        recorded = [s for n, s in sorted(self._step_seconds.items()) if request.first_step <= n <= request.last_step]
        near = sorted(
            (n for n in self._step_seconds if n > 1 and not request.first_step <= n <= request.last_step),
            key=lambda n: min(abs(n - request.first_step), abs(n - request.last_step)),
        )[:6]
        others = sorted(self._step_seconds[n] for n in near)
        return {
            "start_seconds": round(start_seconds, 3),
            "stop_seconds": round(stop_seconds, 3),
            "step_seconds": [round(s, 4) for s in recorded],
            "neighbor_step_seconds": round(others[len(others) // 2], 4) if others else None,
        }

    def _wait(self, seconds: float, why: str) -> None:
        deadline = time.monotonic() + seconds
        for collector in self._collectors:
            collector.join(max(0.0, deadline - time.monotonic()))
            collector.give_up(why)
        self._collectors.clear()

    def _fail(self, capture: _Capture, why: str, step: int) -> None:
        self._report.capture(capture.request.capture, "failed", step=step, text=why)


def _method(method: Any, is_beside: bool) -> Any:
    """Return the method of an actor as it is called between its other calls, or beside them."""
    return method.options(concurrency_group=CAPTURES) if is_beside else method


def _busy(other: Request) -> str:
    return f"Capture {other.capture} records {'already' if other.seconds else other.steps}."


def _names(capture: _Capture) -> list[str]:
    return [w.name for w in capture.workers]


def _told(worker: Worker, error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{worker.role} rank {worker.rank} did not answer: {lines[0] if lines else type(error).__name__}"


def _sentence(problems: Mapping[str, str]) -> str:
    """Return each different reason once, with who has it."""
    by_reason: dict[str, list[str]] = {}
    for name, problem in sorted(problems.items()):
        by_reason.setdefault(problem, []).append(name)
    return " ".join(f"{', '.join(names)}: {reason}" for reason, names in by_reason.items())
