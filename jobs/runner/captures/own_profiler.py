"""A capture by the trainer's own profiler: the runner waits for its files and hands them over.

The trainer was told at its start what to record (its adapter). Files are taken once the last step is over and none of
them has grown for a while: nobody says when the last one is written.
"""

import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from jobs.adapters.captures import CaptureFile
from jobs.runner.captures.announce import Teller
from profiling.captures.files import Window, announcement
from profiling.captures.request import Request

SETTLE_SECONDS = 5.0
MAX_FILES = 1000
MAX_NAME = 200  # characters; the id of the capture stands before it
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._+=@-]+")


class OwnRecording:
    """One capture; `files` looks for what the trainer has written so far."""

    def __init__(
        self,
        request: Request,
        *,
        files: Callable[[], Sequence[CaptureFile]],
        run_dir: Path,
        teller: Teller,
        step: int,
        label: str,
    ) -> None:
        self.request = request
        self._files, self._run_dir, self._teller, self._label = files, run_dir, teller, label
        self._state = "armed"
        self._sizes: dict[Path, int] = {}
        self._still_since = math.inf
        teller.state(request, "armed", step=step)

    @property
    def is_over(self) -> bool:
        """See Capture."""
        return self._state == "over"

    @property
    def is_recording(self) -> bool:
        """Never: nobody but the trainer can end what it records."""
        return False

    def look(self, *, step: int, now: float) -> None:
        """See Capture."""
        self._follow(step)
        if self._state == "writing" and self._are_whole(now):
            self._announce()

    def withdraw(self, *, step: int) -> bool:
        """See Capture. The trainer records these steps anyway, and its files stay in the run directory."""
        if self._state != "armed":
            return False
        self._move("over", step, told="withdrawn")
        return True

    def end(self) -> None:
        """See Capture: it ends with its steps."""

    def finish(self, *, step: int) -> None:
        """See Capture: nobody writes any more, so all that is there is whole, or as whole as it gets."""
        if self.is_over:
            return
        self._follow(step)
        if self._found():
            self._announce()
            return
        why = f"The run ended after step {step}, before {self._label} wrote a file of {self.request.steps}."
        if step >= self.request.last_step:
            why = f"{self._label} wrote no file of {self.request.steps}. Its log says why."
        self._move("over", step, told="failed", text=why)

    def _follow(self, step: int) -> None:
        """Tell how far the trainer has come with these steps."""
        request = self.request
        if self._state == "armed" and step >= request.first_step - 1 and step:
            self._move("recording", min(step + 1, request.first_step))
        if self._state in ("armed", "recording") and step >= request.last_step:
            if self._state == "armed":
                self._move("recording", request.first_step)
            self._teller.state(request, "stopping", step=request.last_step)
            self._move("writing", request.last_step)

    def _are_whole(self, now: float) -> bool:
        sizes = {file.path: file.size for file in self._found()}
        if sizes != self._sizes:
            self._sizes, self._still_since = sizes, now
        return bool(sizes) and now - self._still_since >= SETTLE_SECONDS

    def _found(self) -> list[CaptureFile]:
        return [file for file in self._files() if file.size > 0][:MAX_FILES]

    def _announce(self) -> None:
        request, found, names = self.request, self._found(), set[str]()
        for file in found:
            relative = file.path.relative_to(self._run_dir)
            name = _NOT_IN_NAMES.sub("-", file.path.name).lstrip(".")[-MAX_NAME:]
            while name in names or not name:
                name = f"{len(names)}-{name}"
            names.add(name)
            step = file.step or request.first_step
            num_steps = 1 if file.step else request.num_steps
            window = Window(capture=request.capture, tool=request.tool, first_step=step, num_steps=num_steps)
            about = announcement(
                window,
                file.path.with_name(name),
                role=file.role,
                rank=file.rank,
                tool_version=self._label,
                size=file.size,
                sha256="",  # told when it is handed over
            )
            self._teller.file(**{**about, "path": str(relative)})
        self._teller.state(
            request,
            "importing",
            step=request.last_step,
            num_files=len(found),
            first_step=request.first_step,
            num_steps=request.num_steps,
        )
        self._state = "over"

    def _move(self, state: str, step: int, *, told: str = "", text: str = "") -> None:
        self._state = state
        self._teller.state(self.request, told or state, step=step, text=text)
