"""Captures of a run: what is asked for, which of them begins and ends when, and what becomes of them when the run ends.

The loop calls `before_step` and `after_step`; between them the workers record (profiling.captures.recording). A capture
by time begins and ends in the middle of a step: a thread of the driver looks for it while the loop waits for workers,
and holds no lock that the loop needs while it waits for them itself. What goes wrong with a capture is reported as its
failure, and never reaches training.

A run that ends leaves a capture open whose files are not all here: workers that are gone may have left some, and the
runner looks for them (jobs/runner/captures/recovery.py).
"""

import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import ray

from jobs.engine.captures.capture import FAILED_SECONDS, TOOL_SECONDS, EngineCapture, StepTimes
from jobs.engine.command_inbox import CommandInbox
from jobs.engine.reporting.run_report import RunReport
from jobs.engine.workers.worker_group import WorkerGroup
from profiling.captures.request import CannotRecord, CaptureRequest, parse_request, within
from profiling.captures.state import BUSY, State
from profiling.captures.tool_selection import select_tool
from profiling.config import TOOLS
from profiling.config import Device as DeviceName

ASK_SECONDS = 30.0
LOOK_SECONDS = 0.2
FINISH_SECONDS = 60.0


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
                self._look()
            except Exception as error:  # a capture is never worth a run
                self._report.say(f"A capture was left as it is: {type(error).__name__}: {error}")

    def _look(self) -> None:
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
        found = select_tool(request.what, device=device, workers={name: self._tools.get(name, {}) for name in names})
        if found.tool:
            return replace(request, tool=found.tool)
        why = " ".join(f"{one.tool}: {' '.join(sorted(set(one.lacking.values())))}" for one in found.passed)
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


def _busy(other: CaptureRequest) -> str:
    return f"Capture {other.capture} records {'already' if other.seconds else other.steps}."
