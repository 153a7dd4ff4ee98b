"""nsys on a process that was started under it (profiling.launch_nsys): a report of exactly the asked steps.

The process itself asks nsys to start and stop its session. `-s none --cpuctxsw=none` always: without them nsys samples,
and where the machine has no hardware counters writing the report never ends.
"""

import contextlib
import os
import re
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from profiling.config import What
from profiling.launch_nsys import SESSION, find_nsys, problem_of_process, version_of_install, without_injection
from profiling.profilers.nvtx import DOMAIN, package
from profiling.recorders.recorder import RecorderFailed, ToolRank, free_text
from profiling.redaction import overwrite, own_secrets

START_SECONDS = 60.0
TRIES = 3
STOP_SECONDS = 120.0
READY_SECONDS = 300.0
_LOOK_SECONDS = 0.2
_KILLED_SECONDS = 2.0
_QUIET_SECONDS = 2.0  # a report that has not grown for so long is complete, if no importer works on it
_ALONE_SECONDS = 30.0  # one that is whole to its last byte, whatever other importers do
_COLLECTING_SECONDS = 0.5
_EVENTS_OF_NSYS = "/injection_files/"  # in the path of the file to which nsys has this process write events
STEP_NAME = "step"
REPORT_END = b"[END]"  # the last bytes of every report that nsys 2022.4 has written to its end

FREE_BYTES = 256 << 20
"""Asked of the folder for temporary files before a recording, and of the report's own."""
LOW_BYTES = 64 << 20
"""A recording is dropped below this: nsys writes from within the process, and a full disk would end the process."""
_GUARD_SECONDS = 0.5


class NsysRecorder:
    """One report of this process."""

    marks = "nvtx"

    def __init__(self) -> None:
        self._path = Path()
        self._step: Any = None
        self._is_recording = False
        self._began = 0.0
        self._lock = threading.Lock()  # held while the session is asked to end
        self._is_over = threading.Event()
        self._cut = ""  # why it was dropped while it recorded

    def sees_other_threads(self) -> bool:
        """It covers the whole process."""
        return True

    def start(self, path: Path) -> None:
        """Start the session's recording."""
        self._path, self._began = path, time.time()
        for folder in {Path(tempfile.gettempdir()), path.parent}:
            if shutil.disk_usage(folder).free < FREE_BYTES:
                text = f"nsys needs {FREE_BYTES >> 20} MiB of free disk: {free_text(folder)}. Free some space there."
                raise RecorderFailed(text)
        arguments = ("-s", "none", "--cpuctxsw=none", "-f", "true", "-o", str(path))
        self._ask("start", *arguments, seconds=START_SECONDS)
        _wait_until_collecting()
        self._is_recording = True
        threading.Thread(target=self._guard, name="free disk for nsys", daemon=True).start()

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
        self._is_over.set()
        with self._lock:
            self._is_recording = False
            if self._cut:
                raise RecorderFailed(self._cut)
            output = self._ask("stop", seconds=STOP_SECONDS)
        if (
            "importation failed" in output.lower() or "import failed" in output.lower()
        ):  # its exit code is 0 all the same
            _remove_raw(output)
            raise RecorderFailed(f"nsys could not write its report: {output.split(chr(10))[-1].strip()[-300:]}")

    def write(self) -> None:
        """Wait until the report is complete: it appears empty, and is filled while nothing says so."""
        deadline = time.monotonic() + READY_SECONDS
        seen, since = -1, time.monotonic()
        while time.monotonic() < deadline:
            size = self._path.stat().st_size if self._path.exists() else 0
            if size != seen:
                seen, since = size, time.monotonic()
            quiet = time.monotonic() - since
            is_whole = bool(size) and _has_end(self._path)
            # the raw file of somebody who was killed stays for ever
            if (is_whole and quiet >= _ALONE_SECONDS) or (
                size and (is_whole or quiet >= _QUIET_SECONDS) and not self._is_importing()
            ):
                overwrite(self._path, own_secrets())  # whoever sees the run may download it
                return
            time.sleep(_LOOK_SECONDS)
        raise RecorderFailed(f"nsys did not finish its report within {READY_SECONDS:.0f} s.")

    def discard(self) -> None:
        """Drop what is being recorded."""
        self._is_over.set()
        with self._lock:
            self._cancel()

    def _cancel(self) -> None:
        if not self._is_recording:
            return
        self._is_recording = False
        with contextlib.suppress(RecorderFailed):  # the session ends with the process
            _remove_raw(self._ask("cancel", seconds=START_SECONDS))

    def _guard(self) -> None:
        """Drop the recording before it fills the disk of the process that it records."""
        folder = Path(tempfile.gettempdir())
        while not self._is_over.wait(_GUARD_SECONDS):
            if shutil.disk_usage(folder).free >= LOW_BYTES:
                continue
            with self._lock:
                if self._is_recording:
                    self._cut = f"The recording was dropped, so that the disk does not fill: {free_text(folder)}."
                    self._cancel()
            return

    def _is_importing(self) -> bool:
        """Return True if a raw recording of this user, begun with ours or later, is still there for an importer."""
        raw = Path(tempfile.gettempdir()).glob("nsys-report-*.qdstrm")
        with contextlib.suppress(OSError):  # it goes while we look
            seen = [path.stat() for path in raw]
            return any(about.st_uid == os.getuid() and about.st_mtime >= self._began for about in seen)
        return True

    def _ask(self, verb: str, *arguments: str, seconds: float) -> str:
        """Run an nsys command on this process's session, up to TRIES times; return what it says, complaints last.

        Of several commands at the same moment, as all workers of a run send them, one may lose its connection. TMPDIR
        stays as at launch: nsys looks it up there.
        """
        command = [find_nsys(), verb, f"--session={os.environ[SESSION]}", *arguments]
        output = ""
        for is_last in (*[False] * (TRIES - 1), True):
            try:
                done = _run(command, seconds)
            except (OSError, subprocess.TimeoutExpired) as error:
                raise RecorderFailed(f"nsys {verb} did not come back: {error}.") from error
            if not done.returncode:
                break
            output = output or " ".join((done.stderr or done.stdout).split())[:300]  # the first says most
            if is_last:
                raise RecorderFailed(f"nsys {verb} failed: {output or f'exit code {done.returncode}'}")
            # killed: Ray ends the children of a process before it; then we are next, else not
            time.sleep(_KILLED_SECONDS if done.returncode < 0 else _LOOK_SECONDS)
        return f"{done.stdout}\n{done.stderr}".strip()


def _wait_until_collecting() -> None:
    """Wait until this process collects, for a moment at most: nsys may say a little earlier that it has started.

    What is marked until then is lost, and with a range's begin the whole range. A process that collects has mapped the
    file that its events go to, at least with nsys 2022.4; with one that does it otherwise the moment passes.
    """
    deadline = time.monotonic() + _COLLECTING_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            if _EVENTS_OF_NSYS in Path("/proc/self/maps").read_text():
                return
        time.sleep(0.001)


def _run(command: list[str], seconds: float) -> subprocess.CompletedProcess[str]:
    """Run nsys. Raises: OSError, subprocess.TimeoutExpired."""
    return subprocess.run(
        command,
        env=without_injection(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )


def _remove_raw(output: str) -> None:
    """Remove the raw recording that nsys says it left: as large as what was recorded, and nobody will read it."""
    for raw in re.findall(r"Generating '([^']+\.qdstrm)'", output):
        Path(raw).unlink(missing_ok=True)


def _has_end(path: Path) -> bool:
    """Return True if a report ends as whole ones do: its last bytes are written last."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - len(REPORT_END)))
        return file.read() == REPORT_END


def _opens(path: Path) -> bool:
    """Return True if nsys itself can read a report."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "report.sqlite"
        command = [find_nsys(), "export", "-q", "true", "-t", "sqlite", "-o", str(target), str(path)]
        try:
            done = _run(command, STOP_SECONDS)
        except (OSError, subprocess.TimeoutExpired):
            return False
        return done.returncode == 0 and target.exists() and target.stat().st_size > 0


class NsysTool:
    """The tool `nsys`."""

    name = "nsys"
    about = "phases, calls of CUDA, kernels and collectives of the whole process: a report of Nsight Systems"
    suffix = ".nsys-rep"
    lost = "nsys left no report: its own process was ended, or had no disk space for it."
    must_tell = True
    is_only_named = False
    shows: Mapping[What, ToolRank] = {
        "kernels": ToolRank(on=("cuda",), order=1, because="sees each kernel and its launch while the calls stay fast"),
        "communication": ToolRank(on=("cuda",), order=1, because="sees each NCCL kernel and the call that launched it"),
        "timing": ToolRank(on=("cpu", "cuda"), order=1, because="adds ranges of phases and little else to the steps"),
    }

    def problem(self) -> str:
        """It takes a process that runs under nsys, and ranges that nsys records."""
        if of_process := problem_of_process():
            return of_process
        try:
            package()
        except ImportError as error:
            return f"The package nvtx cannot be used here ({error}), so a report would not show phases."
        return ""

    def version(self) -> str:
        """Return the version of nsys, "nsys 2024.6.2.225-246235244400v0": it decides who can open the report."""
        return version_of_install()

    def recorder(self, what: str) -> NsysRecorder:  # noqa: ARG002
        """Return a recorder for one capture."""
        return NsysRecorder()

    def gather(self, folder: Path, capture: str) -> dict[str, str]:  # noqa: ARG002
        """Its agent writes the report of a process that is gone by itself."""
        return {}

    def problem_of_left(self, path: Path, secrets: Collection[bytes]) -> str:
        """Its agent writes the report of a process that is gone, within seconds; a part of one cannot be opened."""
        if not path.stat().st_size:
            return "nsys came to no end with its report."
        if not _has_end(path) and not _opens(path):  # of another version it may end otherwise
            return "The report of nsys breaks off."
        overwrite(path, secrets)
        return ""


PLUGIN = NsysTool()
