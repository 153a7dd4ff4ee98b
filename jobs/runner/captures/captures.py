"""Captures of a run whose trainer writes no events and takes no commands: asked for by the console, told by the runner.

Two ways lead to files: the trainer's own profiler, which was told at its start (own_recording.py), and our recorder in
its processes (attached.py). Everything happens in the thread that calls `look`; nothing here is worth a run, so nothing
is raised.
"""

import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from jobs.adapters.adapter import Adapter
from jobs.catalog.own_profile import own_profile
from jobs.catalog.runspec import RunSpec
from jobs.runner.captures.announce import Capture, Teller
from jobs.runner.captures.attachable import AttachableWorker, AttachableWorkers
from jobs.runner.captures.attached import AttachedCapture
from jobs.runner.captures.own_profiler import OwnRecording
from jobs.runner.reporting.commands import Commands
from profiling.captures.request import CaptureRefused, Request, parse_request
from profiling.events import Event, note

LOOK_SECONDS = 0.2
WORKERS_SECONDS = 1.0  # between looks for processes: each is a listing of a folder
HURRIED_SECONDS = 10.0  # that a stop waits at most for what is recorded

HARMLESS = ("stacks",)  # beside the profilers of torch and CUDA
OWN = "trainer"  # in the payload of a command, under `by`: its own profiler was told already


class Recording:
    """All captures of an attempt; at most one records in the trainer's processes at a time."""

    def __init__(
        self,
        *,
        spec: RunSpec,
        adapter: Adapter,
        label: str,
        run_dir: Path,
        attempt: int,
        commands: Commands,
        write: Callable[[Event], None],
        say: Callable[[str], None],
    ) -> None:
        self._adapter, self._label, self._run_dir, self._attempt = adapter, label, run_dir, attempt
        self._commands, self._say, self._write = commands, say, write
        self._workers = AttachableWorkers(
            run_dir, role_of=lambda actor: adapter.captures.role_of(spec=spec, actor=actor), label=label
        )
        self._teller = Teller(attempt=attempt, write=write)
        self._captures: list[Capture] = []
        own = own_profile(spec)
        self._own_until = own.first_step + own.num_steps - 1 if own is not None else 0
        self._next_look = self._next_workers = 0.0
        self._told: dict[str, AttachableWorker] = {}
        self._seen: dict[str, AttachableWorker] = {}
        self._is_broken = False

    def look(self, *, step: int, now: float) -> None:
        """Obey what was asked since the last call, and go on with what is under way; `step` is over by the log."""
        if self._is_broken or now < self._next_look:
            return
        self._next_look = now + LOOK_SECONDS
        try:
            self._obey(step)
            for capture in self._captures[:]:
                if not self._must_wait(capture, step):
                    capture.look(step=step, now=now)
                if capture.is_over:
                    self._captures.remove(capture)
            self._tell_workers(step, now)
        except Exception:  # a capture is never worth a run
            self._is_broken = True
            self._say(f"Captures are left as they are.\n{traceback.format_exc()}")

    def end_what_records(self) -> bool:
        """The trainer is about to be ended: end what records in it; return True as long as files are written."""
        for capture in self._captures:
            capture.end()
        return not self._is_broken and any(capture.is_recording for capture in self._captures)

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

    def _must_wait(self, capture: Capture, step: int) -> bool:
        """Return True for a capture that may not begin yet: a process takes one profiler at a time.

        The trainer's own would not be refused but end the run, so as long as it has steps ahead ours stays away.
        """
        if not isinstance(capture, AttachedCapture) or capture.is_recording:
            return False
        is_ahead = step < self._own_until and capture.request.tool not in HARMLESS
        if is_ahead and capture.request.seconds:
            capture.refuse(
                f"{self._label} records up to step {self._own_until} itself, and two profilers in one process would "
                "end it. Ask again after that step, or record stacks.",
                step=step,
            )
            return False
        return is_ahead or any(other.is_recording for other in self._captures)

    def _obey(self, step: int) -> None:
        for verb, payload in self._commands.fresh():
            if verb == "profile":
                self._arm(payload, step)
                continue
            for capture in [one for one in self._captures if one.request.capture == payload.get("capture")]:
                if verb == "finish":
                    capture.end()
                elif verb == "withdraw" and not capture.withdraw(step=step):
                    self._say(f"capture {capture.request.capture} is withdrawn too late: it is not armed any more")
            self._captures = [capture for capture in self._captures if not capture.is_over]

    def _arm(self, payload: Mapping[str, Any], step: int) -> None:
        try:
            request = parse_request(payload)
        except CaptureRefused as refused:
            if refused.capture:
                request = Request(capture=refused.capture, tool="", first_step=0, num_steps=1, roles=(), ranks=())
                self._teller.state(request, "failed", step=step, text=str(refused))
            return
        if payload.get("by") == OWN:
            files = self._files
            own = OwnRecording(
                request, files=files, run_dir=self._run_dir, teller=self._teller, step=step, label=self._label
            )
            self._captures.append(own)
            return
        self._captures.append(
            AttachedCapture(
                request,
                workers=self._workers,
                run_dir=self._run_dir,
                teller=self._teller,
                step=step,
                label=self._label,
            )
        )

    def _files(self) -> Any:
        return self._adapter.captures.files(run_dir=self._run_dir)

    def _tell_workers(self, step: int, now: float) -> None:
        """Tell which tools can record on which worker, once as many have come as come at once."""
        if now < self._next_workers:
            return
        self._next_workers = now + WORKERS_SECONDS
        there = self._workers.there()
        if there and there == self._seen and there != self._told:
            self._told = there
            torch = sum(not worker.problems.get("torch") for worker in there.values())
            meta = {
                "profilers": {name: dict(worker.problems) for name, worker in there.items()},
                "places": {name: worker.node for name, worker in there.items()},
            }
            text = f"Ready to record: torch on {torch} of {len(there)} workers"
            self._write(note(text, attempt=self._attempt, step=step, meta=meta))
        self._seen = there
