"""nsys on a process that was started under it (profiling.launch_nsys): a report of exactly the asked steps.

The process itself asks nsys to start and stop its session. `-s none --cpuctxsw=none` always: without them nsys samples,
and where the machine has no hardware counters writing the report never ends.
"""

import contextlib
import os
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from profiling.launch_nsys import SESSION, find_nsys, problem_of_process, version_of_install, without_injection
from profiling.profilers.nvtx import DOMAIN, package
from profiling.recorders.recorder import RecorderFailed
from profiling.redaction import overwrite, own_secrets

START_SECONDS = 60.0
START_TRIES = 3
STOP_SECONDS = 120.0
READY_SECONDS = 300.0
_LOOK_SECONDS = 0.2
_QUIET_SECONDS = 2.0  # a report that has not grown for so long is complete, if no importer works on it
STEP_NAME = "step"


class NsysRecorder:
    """One report of this process."""

    marks = "nvtx"

    def __init__(self) -> None:
        self._path = Path()
        self._step: Any = None
        self._is_recording = False
        self._began = 0.0

    def sees_other_threads(self) -> bool:
        """It hears the whole process."""
        return True

    def start(self, path: Path) -> None:
        """Start the session's recording."""
        self._path, self._began = path, time.time()
        arguments = ("-s", "none", "--cpuctxsw=none", "-f", "true", "-o", str(path))
        for attempt in range(START_TRIES):
            try:
                self._ask("start", *arguments, seconds=START_SECONDS)
                break
            except RecorderFailed:
                if attempt == START_TRIES - 1:
                    raise
                time.sleep(_LOOK_SECONDS)  # of several commands at the same moment one may lose its connection
        self._is_recording = True

    def begin_step(self, step: int) -> None:
        """Open the range `step`, whose payload is the number; it belongs to no thread, so phases do not nest in it."""
        self._step = package().start_range(f"{STEP_NAME} {step}", domain=DOMAIN, payload=step)

    def end_step(self) -> None:
        """Close it."""
        if self._step is not None:
            package().end_range(self._step)
            self._step = None

    def stop(self) -> None:
        """Stop recording. A range of ours comes last: nsys may stretch the last one to the end of the session."""
        package().push_range("end of recording", domain=DOMAIN)
        package().pop_range(domain=DOMAIN)
        self._is_recording = False
        self._ask("stop", seconds=STOP_SECONDS)

    def write(self) -> None:
        """Wait until the report is complete: it appears empty, and is filled while nothing says so."""
        deadline = time.monotonic() + READY_SECONDS
        seen, since = -1, time.monotonic()
        while time.monotonic() < deadline:
            size = self._path.stat().st_size if self._path.exists() else 0
            if size != seen:
                seen, since = size, time.monotonic()
            elif size and not self._is_importing() and time.monotonic() - since >= _QUIET_SECONDS:
                overwrite(self._path, own_secrets())  # whoever sees the run may download it
                return
            time.sleep(_LOOK_SECONDS)
        raise RecorderFailed(f"nsys did not finish its report within {READY_SECONDS:.0f} s.")

    def discard(self) -> None:
        """Drop what is being recorded."""
        if self._is_recording:
            self._is_recording = False
            try:
                self._ask("cancel", seconds=START_SECONDS)
            except RecorderFailed:
                return  # the session ends with the process

    def _is_importing(self) -> bool:
        """Return True if a raw recording of this user, begun with ours or later, is still there for an importer."""
        raw = Path(tempfile.gettempdir()).glob("nsys-report-*.qdstrm")
        with contextlib.suppress(OSError):  # it goes while we look
            seen = [path.stat() for path in raw]
            return any(about.st_uid == os.getuid() and about.st_mtime >= self._began for about in seen)
        return True

    def _ask(self, verb: str, *arguments: str, seconds: float) -> None:
        """Run an nsys command on this process's session. TMPDIR stays as at launch: nsys looks it up there."""
        command = [find_nsys(), verb, f"--session={os.environ[SESSION]}", *arguments]
        try:
            done = subprocess.run(
                command,
                env=without_injection(),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=seconds,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise RecorderFailed(f"nsys {verb} did not come back: {error}.") from error
        if done.returncode:
            said = " ".join((done.stderr or done.stdout).split())[:300]
            raise RecorderFailed(f"nsys {verb} failed: {said or f'exit code {done.returncode}'}")


class NsysTool:
    """The tool `nsys`."""

    name = "nsys"
    suffix = ".nsys-rep"

    def problem(self) -> str:
        """It takes a process that runs under nsys, and ranges that nsys can hear."""
        if found := problem_of_process():
            return found
        try:
            package()
        except ImportError as error:
            return f"The package nvtx cannot be used here ({error}), so a report would not show phases."
        return ""

    def version(self) -> str:
        """Return the version of nsys, "nsys 2024.6.2.225-246235244400v0": it decides who can open the report."""
        return version_of_install()

    def recorder(self) -> NsysRecorder:
        """Return a recorder for one capture."""
        return NsysRecorder()


PLUGIN = NsysTool()
