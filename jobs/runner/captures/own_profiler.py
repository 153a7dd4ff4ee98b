"""A capture by the trainer's own profiler: the runner waits for its files and hands them over.

The trainer was told at its start what to record (its adapter). Files are taken once the last step is over and none of
them has grown for a while: nobody says when the last one is written.
"""

import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from jobs.adapters.captures import CaptureFile
from profiling.captures.capture import CaptureReport, CaptureRequest, CaptureWindow, TrackedCapture, announcement

SETTLE_SECONDS = 5.0
MAX_FILES = 1000
MAX_NAME = 200  # characters; the id of the capture stands before it
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._+=@-]+")


class OwnProfilerCapture(TrackedCapture):
    """One capture; `files` looks for what the trainer has written so far. Nobody but the trainer can end it.

    It is withdrawn as any other; the trainer records these steps anyway, and its files stay in the run directory.
    """

    def __init__(
        self,
        request: CaptureRequest,
        *,
        files: Callable[[], Sequence[CaptureFile]],
        run_dir: Path,
        report: CaptureReport,
        step: int,
        label: str,
    ) -> None:
        self._files, self._run_dir, self._label = files, run_dir, label
        self._sizes: dict[Path, int] = {}
        self._still_since = math.inf
        super().__init__(request, report=report, step=step)

    def look(self, *, step: int, now: float) -> None:
        """Go on as far as is due; `step` is the last one that the log says is over, `now` monotonic seconds."""
        self._follow(step)
        if self.state == "writing" and self._are_whole(now):
            self._announce()

    def finish(self, *, step: int) -> None:
        """The trainer has ended and `step` was its last: nobody writes any more, so what is there is all."""
        if self.is_over:
            return
        self._follow(step)
        if self._found():
            self._announce()
            return
        why = f"The run ended after step {step}, before {self._label} wrote a file of {self.request.steps}."
        if step >= self.request.last_step:
            why = f"{self._label} wrote no file of {self.request.steps}. Its log says why."
        self.move("fail", step=step, text=why)

    def _follow(self, step: int) -> None:
        """Report how far the trainer has come with these steps."""
        first, last = self.request.first_step, self.request.last_step
        if step >= max(first - 1, 1):
            self.move("record", step=min(step + 1, first))
        if step >= last:
            self.move("stop", step=last)
            self.move("write", step=last)

    def _are_whole(self, now: float) -> bool:
        sizes = {file.path: file.size for file in self._found()}
        if sizes != self._sizes:
            self._sizes, self._still_since = sizes, now
        return bool(sizes) and now - self._still_since >= SETTLE_SECONDS

    def _found(self) -> list[CaptureFile]:
        return [file for file in self._files() if file.size > 0][:MAX_FILES]

    def _announce(self) -> None:
        request, files, names = self.request, self._found(), set[str]()
        for file in files:
            relative = file.path.relative_to(self._run_dir)
            name = _NOT_IN_NAMES.sub("-", file.path.name).lstrip(".")[-MAX_NAME:]
            while name in names or not name:
                name = f"{len(names)}-{name}"
            names.add(name)
            step = file.step or request.first_step
            num_steps = 1 if file.step else request.num_steps
            about = announcement(
                CaptureWindow(capture=request.capture, tool=request.tool, first_step=step, num_steps=num_steps),
                file.path.with_name(name),
                role=file.role,
                rank=file.rank,
                tool_version=self._label,
                size=file.size,
                sha256="",  # told when it is handed over
            )
            self.report.artifact(**{**about, "path": str(relative)})
        self.move(
            "collect",
            step=request.last_step,
            num_files=len(files),
            first_step=request.first_step,
            num_steps=request.num_steps,
        )
