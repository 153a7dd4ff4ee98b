"""Captures of a run whose trainer writes no events and takes no commands: asked for by the console, told by the runner.

Two ways lead to files: the trainer's own profiler, which was told at its start (own_profiler.py), and our recorder in
its processes (attached.py). Everything happens in the thread that calls `look`; nothing here is worth a run, so nothing
is raised.
"""

import json
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jobs.adapters.adapter import adapter
from jobs.catalog.spec.own_profile import beside_tools, own_profile, starts_under_nsys
from jobs.catalog.spec.parse import SpecInvalid, parse_spec
from jobs.catalog.spec.runspec import RunSpec
from jobs.runner.captures.attachable import LATE_FOR_NSYS, NO_NSYS, AttachableWorker, AttachableWorkers
from jobs.runner.captures.attached import AttachedCapture
from jobs.runner.captures.own_profiler import OwnProfilerCapture
from jobs.runner.console_client.runner_job import RunnerJob
from jobs.runner.reporting.shipped_report import ShippedReport
from jobs.runner.reporting.trainer_progress import TrainerProgress
from jobs.runner.translation import Translation, label_of
from profiling.captures.capture import CannotRecord, CaptureRequest, next_state, parse_request

LOOK_SECONDS = 0.2
WORKERS_SECONDS = 1.0  # between looks for processes: each is a listing of a folder
HURRIED_SECONDS = 10.0  # that a stop waits at most for what is recorded

HARMLESS = ("stacks",)  # beside the profilers of torch and CUDA
OWN = "trainer"  # in the payload of a command, under `by`: its own profiler was told already


class RunnerCaptures:
    """All captures of an attempt; at most one records in the trainer's processes at a time."""

    def __init__(self, spec: RunSpec, job: RunnerJob, report: ShippedReport, translation: Translation) -> None:
        """Raises: OSError."""
        trainer = adapter(spec.trainer.name).captures
        self._spec, self._run_dir, self._label = spec, job.run_dir, label_of(spec)
        self._commands, self._say, self._translation = report.commands, report.say, translation
        self._workers = AttachableWorkers(
            job.run_dir,
            role_of=lambda actor: trainer.role_of(spec=spec, actor=actor),
            no_nsys=_no_nsys(spec).format(label=self._label),
        )
        self._captures: list[AttachedCapture | OwnProfilerCapture] = []
        own = own_profile(spec)
        self._own_until = own.first_step + own.num_steps - 1 if own is not None else 0
        self._next_look = self._next_workers = 0.0
        self._reported: dict[str, AttachableWorker] = {}
        self._seen: dict[str, AttachableWorker] = {}
        self._is_broken = False

    def workers(self) -> list[AttachableWorker]:
        """Return the trainer's processes that have said who they are."""
        return list(self._workers.there().values())

    def look(self, *, step: int, now: float) -> None:
        """Obey what was asked since the last call, and go on with what is under way; `step` is over by the log."""
        if self._is_broken or now < self._next_look:
            return
        self._next_look = now + LOOK_SECONDS
        try:
            self._obey(step)
            for capture in self._captures:
                if isinstance(capture, OwnProfilerCapture) or not self._must_wait(capture, step):
                    capture.look(step=step, now=now)
            self._captures = [capture for capture in self._captures if not capture.is_over]
            self._report_workers(step, now)
        except Exception:  # a capture is never worth a run
            self._is_broken = True
            self._say(f"Captures are left as they are.\n{traceback.format_exc()}")

    def end_what_records(self) -> bool:
        """The trainer is about to be ended: end what records in it; return True as long as files are written."""
        for capture in self._attached:
            capture.end()
        return not self._is_broken and any(capture.is_recording for capture in self._attached)

    def finish(self, *, step: int) -> None:
        """The trainer has ended, its last step is `step`: say how each capture ended.

        Nobody looks at what was recording any more: recovery has its files, and has told of them.
        """
        try:
            self._obey(step)
            for capture in self._captures:
                capture.finish(step=step)
        except Exception:  # as above
            self._say(f"Captures are left as they are.\n{traceback.format_exc()}")
        self._captures.clear()

    @property
    def _attached(self) -> list[AttachedCapture]:
        return [capture for capture in self._captures if isinstance(capture, AttachedCapture)]

    def _must_wait(self, capture: AttachedCapture, step: int) -> bool:
        """Return True for a capture that may not begin yet: a process takes one profiler at a time.

        The trainer's own would not be refused but end the run, so as long as it has steps ahead ours stays away.
        """
        if capture.is_recording:
            return False
        is_ahead = step < self._own_until and capture.request.tool not in HARMLESS
        if is_ahead and capture.request.seconds:
            text = (
                f"{self._label} records up to step {self._own_until} itself, and two profilers in one process would "
                "end it. Ask again after that step, or record stacks."
            )
            capture.move("fail", step=step, text=text)
        return is_ahead or any(other.is_recording for other in self._attached)

    def _obey(self, step: int) -> None:
        for verb, payload in self._commands.fresh():
            if verb == "profile":
                self._arm(payload, step)
                continue
            for capture in [one for one in self._captures if one.request.capture == payload.get("capture")]:
                if verb == "finish" and isinstance(capture, AttachedCapture):
                    capture.end()
                elif verb == "withdraw" and not capture.move("withdraw", step=step):
                    self._say(f"capture {capture.request.capture} is withdrawn too late: it is not armed any more")
            self._captures = [capture for capture in self._captures if not capture.is_over]

    def _arm(self, payload: Mapping[str, Any], step: int) -> None:
        try:
            request = parse_request(payload)
        except CannotRecord as refused:
            if refused.capture:
                self._translation.capture(refused.capture, "failed", step=step, text=str(refused))
            return
        if payload.get("by") == OWN:
            self._captures.append(_own_capture(request, self._spec, self._run_dir, self._translation, step=step))
            return
        self._captures.append(
            AttachedCapture(
                request,
                workers=self._workers,
                run_dir=self._run_dir,
                report=self._translation,
                step=step,
                label=self._label,
            )
        )

    def _report_workers(self, step: int, now: float) -> None:
        """Report which tools can record on which worker, once as many have come as come at once."""
        if now < self._next_workers:
            return
        self._next_workers = now + WORKERS_SECONDS
        there = self._workers.there()
        if there and there == self._seen and there != self._reported:
            self._reported = there
            torch = sum(not worker.problems.get("torch") for worker in there.values())
            self._translation.note(
                f"Ready to record: torch on {torch} of {len(there)} workers",
                step=step,
                profilers={name: dict(worker.problems) for name, worker in there.items()},
                places={name: worker.node for name, worker in there.items()},
            )
        self._seen = there


def _no_nsys(spec: RunSpec) -> str:
    """Return why nsys records none of the run's processes, "" where they were started so that it may."""
    if starts_under_nsys(spec):
        return ""
    return LATE_FOR_NSYS if "nsys" in beside_tools(spec) else NO_NSYS


def finish_own(job: RunnerJob, translation: Translation, progress: TrainerProgress) -> None:
    """Take what the trainer's own profiler left when its runner was killed; what is told already changes nothing."""
    try:
        spec = parse_spec(json.loads((job.run_dir / "spec.json").read_text("utf-8")))
        lines = (job.run_dir / "commands.jsonl").read_bytes().splitlines()
        payloads = [json.loads(line)["payload"] for line in lines if b'"profile"' in line]
        requests = [parse_request(payload) for payload in payloads if payload.get("by") == OWN]
    except (OSError, ValueError, KeyError, AttributeError, SpecInvalid):
        return
    for request in requests:
        if next_state(progress.captures.get(request.capture, {}).get("state", "armed"), "collect"):
            capture = _own_capture(request, spec, job.run_dir, translation, step=progress.step)
            capture.finish(step=progress.step)


def _own_capture(
    request: CaptureRequest, spec: RunSpec, run_dir: Path, translation: Translation, *, step: int
) -> OwnProfilerCapture:
    trainer = adapter(spec.trainer.name).captures
    return OwnProfilerCapture(
        request,
        files=lambda: trainer.files(run_dir=run_dir),
        run_dir=run_dir,
        report=translation,
        step=step,
        label=label_of(spec),
    )
