"""A capture by our own recorder in processes that we did not write (profiling.attach).

It records by time: from when the log says that the step before the first one is over, until it says so of the last.
What a trainer logs late is so late here, too; `first_step` and `num_steps` tell what it was.
"""

import contextlib
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from jobs.runner.captures.attachable import AttachableWorker, AttachableWorkers
from profiling.captures.capture import (
    UNFINISHED,
    CannotRecord,
    CaptureReport,
    CaptureRequest,
    CaptureWindow,
    TrackedCapture,
    announcement,
    final_path,
    missing_text,
    recordings,
    sha256_of,
    stem,
    within,
)
from profiling.config import Device
from profiling.recorders.recorder import load_tool, select_tool, version_of

START_SECONDS = 60.0
WRITE_SECONDS = 1800.0
NOT_ASKED = 0  # no request has this number
ONE_FOR_ALL = ("nsys",)  # a session of it holds all processes of a trainer: the file of the first has the others in it
SETTLE_SECONDS = 1.0  # for the workers of a run that has done no step: they come up one after the other


class AttachedCapture(TrackedCapture):
    """One capture by `workers`; its files go below the run directory. What goes wrong fails it: nothing is raised."""

    def __init__(
        self,
        request: CaptureRequest,
        *,
        workers: AttachableWorkers,
        run_dir: Path,
        report: CaptureReport,
        step: int,
        label: str,
    ) -> None:
        self._workers, self._run_dir, self._label = workers, run_dir, label
        # who was asked, and under which number the answer comes
        self._asked: dict[str, tuple[AttachableWorker, int]] = {}
        self._problems: dict[str, str] = {}
        self._files = 0
        self._armed_at = step
        self._since = math.inf  # monotonic: of the state, or of when the workers were seen first
        self._ends_at = math.inf
        self._begun_at = self._ended_at = 0  # steps that were over when it began, and when it ended
        super().__init__(request, report=report, step=step)

    @property
    def is_recording(self) -> bool:
        """True while processes record or write for it, or are about to."""
        return self.state == "starting" or self.state in UNFINISHED

    def look(self, *, step: int, now: float) -> None:
        """Go on as far as is due; `step` is the last one that the log says is over, `now` monotonic seconds."""
        if self.state == "armed":
            self._begin_if_due(step, now)
        elif self.state == "starting":
            self._take_starts(step, now)
        elif self.state == "recording":
            is_last = not self.request.seconds and step >= self._last_step
            if is_last or now >= self._ends_at or not self._is_living():
                self._stop(step, now)
        elif self.state == "writing":
            self._take_files(step, now)

    def end(self) -> None:
        """End it at the next look."""
        self._ends_at = -math.inf

    def finish(self, *, step: int) -> None:
        """The trainer has ended and `step` was its last: say how what has not begun has ended.

        What was recording is found, and told of, by whoever looks after the trainer's end (recovery).
        """
        if self.state == "armed":
            self._fail(f"The run ended after step {step}, before {self.request.steps}.", step)
        elif self.state == "starting":
            self._fail("The run ended before its processes began to record.", step)

    @property
    def _last_step(self) -> int:
        if self.request.first_step:
            return max(self.request.last_step, self._begun_at + 1)
        return self._begun_at + self.request.num_steps

    def _is_living(self) -> bool:
        return any(self._workers.is_there(worker) for worker, _ in self._asked.values())

    def _begin_if_due(self, step: int, now: float) -> None:
        request = self.request
        if request.seconds and now >= self._ends_at:
            self.move("withdraw", step=step)
            return
        if not request.seconds and not self._is_due(step):
            return
        if request.first_step and step >= request.last_step:
            text = f"The log was at step {step} before {request.steps} could be begun. Record by time instead."
            self._fail(text, step)
            return
        there = self._workers.there()
        if not there and not request.seconds:
            return  # they are being started
        if not step and not request.seconds:
            self._since = min(self._since, now)
            if now - self._since < SETTLE_SECONDS:
                return
        try:
            if not there:
                text = f"No process of {self._label} on this node can be recorded yet. Try again once it trains."
                raise CannotRecord(text)
            sizes: dict[str, int] = {}
            for worker in there.values():
                sizes[worker.role] = max(sizes.get(worker.role, 0), worker.rank + 1)
            chosen = [there[name] for name in within(request, sizes) if name in there]
        except CannotRecord as refused:
            self._fail(str(refused), step)
            return
        self._begin(chosen, step, now)

    def _is_due(self, step: int) -> bool:
        if self.request.first_step:
            return step >= self.request.first_step - 1
        return step > self._armed_at or not self._armed_at

    def _begin(self, chosen: list[AttachableWorker], step: int, now: float) -> None:
        folder = recordings(self._run_dir)
        if not self.request.tool:
            self.request = replace(self.request, tool=_selected_tool(self.request, chosen))
        if not self.request.tool:
            self._fail(f"No tool that {self._label}'s processes have shows {self.request.what}.", step)
            return
        tool, what = self.request.tool, "" if self.request.what == "none" else self.request.what
        if tool in ONE_FOR_ALL:
            chosen = chosen[:1]
        for worker in chosen:
            if problem := worker.problems.get(tool, ""):
                self._problems[worker.name] = problem
                continue
            self._ask(
                worker, "start", tool=tool, what=what, folder=str(folder), name=stem(self.request.capture, worker.name)
            )
        self.move("start")
        self._since, self._begun_at = now, step
        self._take_starts(step, now)

    def _take_starts(self, step: int, now: float) -> None:
        for name, (worker, number) in list(self._asked.items()):
            answer = self._workers.answer(worker, number)
            if answer is None and self._workers.is_there(worker) and now - self._since < START_SECONDS:
                return
            if answer is None:
                self._ask(worker, "drop")  # if it begins after all, nobody would end it
                self._problems[name] = f"it did not begin within {START_SECONDS:.0f} s."
            elif answer.get("problem"):
                self._problems[name] = str(answer["problem"])
            if name in self._problems:
                self._asked.pop(name, None)
        if not self._asked:
            self._fail(missing_text(self._problems), step)
            return
        self._begun_at = step
        if self.request.seconds:
            self._ends_at = min(self._ends_at, now + self.request.seconds)
        self.move(
            "record",
            step=step + 1,
            text=self._not_recorded(),
            missing=dict(self._problems),
            workers=sorted(self._asked),
            tool=self.request.tool,
            first_step=step + 1,
            num_steps=self.request.num_steps,
            seconds=self.request.seconds,
        )

    def _stop(self, step: int, now: float) -> None:
        self._since, self._ended_at = now, step
        self.move("stop", step=step)
        for name, (worker, _) in list(self._asked.items()):
            if self._workers.is_there(worker):
                self._ask_to_stop(worker)
            else:
                self._take(name, worker, self._workers.answer(worker, self._asked[name][1]), "its process has ended.")
        self.move("write", step=step)
        self._take_files(step, now)

    def _take_files(self, step: int, now: float) -> None:
        self._take_answers(is_last_chance=now - self._since > WRITE_SECONDS, why="its file was not written in time.")
        if not self._asked:
            self._close(step)

    def _take_answers(self, *, is_last_chance: bool, why: str) -> None:
        for name, (worker, number) in list(self._asked.items()):
            answer = self._workers.answer(worker, number)
            if answer is not None and (answer.get("size") or answer.get("problem")):
                self._take(name, worker, answer, why)
            elif is_last_chance or not self._workers.is_there(worker):
                self._take(name, worker, answer, why if is_last_chance else "its process has ended.")
            elif number == NOT_ASKED:
                self._ask_to_stop(worker)

    def _take(self, name: str, worker: AttachableWorker, answer: Mapping[str, Any] | None, why: str) -> None:
        """Put the file of one process into place and tell of it, or keep why there is none."""
        del self._asked[name]
        tool = load_tool(self.request.tool)
        made = recordings(self._run_dir) / f"{stem(self.request.capture, name)}{tool.suffix}"
        answer = answer or {}
        try:
            if answer.get("problem") or not made.is_file():
                self._problems[name] = str(answer.get("problem") or why)
                return
            path = final_path(self._run_dir, self.request.capture, made.name)
            path.parent.mkdir(parents=True, exist_ok=True)
            made.replace(path)
            about = announcement(
                self._window,
                path,
                role=worker.role,
                rank=worker.rank,
                tool_version=str(answer.get("version") or version_of(tool)),
                size=path.stat().st_size,
                sha256=str(answer.get("sha256") or sha256_of(path)),
            )
        except OSError as error:
            self._problems[name] = f"its file was not kept: {error.strerror or error}."
            return
        self._files += 1
        self.report.artifact(**about)

    @property
    def _window(self) -> CaptureWindow:
        """The steps that were under way while it recorded."""
        over = max(self._ended_at - self._begun_at, 0) + bool(self.request.seconds)
        return CaptureWindow(
            capture=self.request.capture,
            tool=self.request.tool,
            first_step=self._begun_at + 1,
            num_steps=max(over, 1),
        )

    def _close(self, step: int) -> None:
        if not self._files:
            self._fail(missing_text(self._problems) or "Nothing was recorded.", step)
            return
        window = self._window
        self.move(
            "collect",
            step=window.first_step + window.num_steps - 1,
            text=self._not_recorded(),
            num_files=self._files,
            missing=dict(self._problems),
            first_step=window.first_step,
            num_steps=window.num_steps,
        )

    def _not_recorded(self) -> str:
        return f"Not recorded: {missing_text(self._problems)}" if self._problems else ""

    def _ask(self, worker: AttachableWorker, verb: Any, **what: Any) -> None:
        try:
            self._asked[worker.name] = worker, self._workers.ask(worker, verb, **what)
        except OSError as error:
            self._problems[worker.name] = f"it could not be asked: {error.strerror or error}."
            self._asked.pop(worker.name, None)

    def _ask_to_stop(self, worker: AttachableWorker) -> None:
        """Ask, or keep that it is to be asked again: what goes on to record takes the process's memory, or its disk."""
        number = NOT_ASKED
        with contextlib.suppress(OSError):
            number = self._workers.ask(worker, "stop")
        self._asked[worker.name] = worker, number

    def _fail(self, why: str, step: int) -> None:
        self.move("fail", step=step, text=why)


def _selected_tool(request: CaptureRequest, chosen: list[AttachableWorker]) -> str:
    """Return the tool that shows what is asked for on most of these processes, "" if none does."""
    device: Device = "cuda" if any(worker.device == "cuda" for worker in chosen) else "cpu"
    return select_tool(request.what, device=device, workers={worker.name: worker.problems for worker in chosen}).tool
