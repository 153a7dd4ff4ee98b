"""The torch profiler: operators, kernels where there is a GPU, and our phases, as a Chrome trace in gzip.

Three of its traps shape this file. By default it sees only the thread that started it, and stopping it from another one
ends the process with a segmentation fault: `profile_all_threads` cures both where torch has it, and where not, a stop
from another thread is refused. Two at once lose the outer one without an error, so a second start is refused. And a
trace can be written only once.
"""

import contextlib
import gzip
import importlib.metadata
import os
import shutil
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from profiling.config import What
from profiling.launch_nsys import TRACED
from profiling.profilers.torch import PLUGIN as MARKS
from profiling.recorders.recorder import InMemory, RecorderFailed, ToolRank, WrongThread, free_text

STEP_NAME = "ProfilerStep#"
"""Beginning of a step's range: what tools that read torch traces look for. The number is the run's own, from 1."""
GZIP_LEVEL = 6
_TAIL_BYTES = 4096
INDUCTOR, GRAPHS = "_inductor", "TORCHINDUCTOR_CUDAGRAPHS"


class TorchRecorder:
    """One trace of this process."""

    marks = "torch"

    def __init__(self, *, has_memory: bool = False) -> None:
        self._has_memory = has_memory
        self._profile: Any = None
        self._path = Path()
        self._thread = 0
        self._sees_all_threads = False
        self._step: Any = None
        self._step_thread = 0

    def sees_other_threads(self) -> bool:
        """Only where torch knows the setting."""
        return self._threads_setting() is not None

    def start(self, path: Path) -> None:
        """Start torch's profiler; the first time in a process may take a second."""
        import torch

        if _is_taken(torch):
            raise RecorderFailed("Another torch profiler is recording in this process; two at once lose one.")
        self._path, self._thread = path, threading.get_ident()
        self._sees_all_threads = self._threads_setting() is not None
        self._begin(torch)
        MARKS.is_recording = True

    def _begin(self, torch: Any) -> None:
        activities = [torch.profiler.ProfilerActivity.CPU]
        if torch.cuda.is_available():
            activities.append(torch.profiler.ProfilerActivity.CUDA)
        self._profile = torch.profiler.profile(
            activities=activities, profile_memory=self._has_memory, experimental_config=self._threads_setting()
        )
        try:
            with _inductor_stays_away(torch):
                self._profile.start()
        except RuntimeError as error:
            self._profile = None
            raise RecorderFailed(f"torch's profiler did not start: {error}") from error

    def _threads_setting(self) -> Any:
        """Return the setting for all threads, None for memory: with it torch tells of no allocation."""
        return None if self._has_memory else _all_threads()

    def begin_step(self, step: int) -> None:
        """Open `ProfilerStep#<step>`."""
        import torch

        self._step, self._step_thread = torch.profiler.record_function(f"{STEP_NAME}{step}"), threading.get_ident()
        self._step.__enter__()

    def end_step(self) -> None:
        """Close it, in the thread that opened it: a step cut by the end of a recording is no whole step."""
        if self._step is not None and self._step_thread == threading.get_ident():
            self._step.__exit__(None, None, None)
        self._step = None

    def stop(self) -> None:
        """Stop it, once the device has done what it was given."""
        import torch

        if not self._may_stop_here():
            raise WrongThread(
                "The trace was started in another thread, and this torch would end the process if it were stopped here."
            )
        self._end(torch)
        MARKS.is_recording = False

    def _may_stop_here(self) -> bool:
        return self._sees_all_threads or threading.get_ident() == self._thread

    def _end(self, torch: Any) -> None:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        with torch.profiler.record_function("end of recording"):
            pass  # the last range of a trace may be cut; this one is nobody's
        self._profile.stop()

    def write(self) -> None:
        """Write the trace under other names first, so that a file that is there is whole. Raises: RecorderFailed.

        Plain before compressed, both beside the target: kineto says nothing of a full disk, and torch's own way to
        .gz makes a small file of nothing then, by way of the folder for temporary files.
        """
        plain = self._path.with_name(f".part-{self._path.name.removesuffix('.gz')}")
        part = self._path.with_name(f".part-{self._path.name}")
        try:
            export(self._profile, plain)
            with plain.open("rb") as source, gzip.open(part, "wb", compresslevel=GZIP_LEVEL) as target:
                shutil.copyfileobj(source, target, length=1 << 20)
            part.replace(self._path)
        except (OSError, RuntimeError) as error:
            if isinstance(error, RecorderFailed):
                raise
            raise RecorderFailed(f"The trace was not written: {error} ({free_text(plain.parent)}).") from error
        finally:
            for left in (plain, plain.with_name(f"{plain.name}.tmp"), part):  # .tmp is kineto's own, if it broke off
                left.unlink(missing_ok=True)
            self._profile = None  # its events take memory

    def discard(self) -> None:
        """Stop, if that is safe here."""
        MARKS.is_recording = False
        if self._profile is not None and self._may_stop_here():
            with contextlib.suppress(Exception):  # nothing of it is needed any more
                self._profile.stop()
        self._profile = None


def export(profile: Any, path: Path) -> None:
    """Write what was recorded as plain JSON. Raises: RecorderFailed, OSError, RuntimeError."""
    if _is_lost(profile):
        raise RecorderFailed("The trace was not written: torch had ended its profiler before the recording was.")
    profile.export_chrome_trace(str(path))
    if not _is_whole(path):
        raise RecorderFailed(f"The trace was not written: torch broke off ({free_text(path.parent)}).")


class _NotForThisThread(set[str]):
    """Names of modules without torch's Inductor, as far as the thread that made it looks."""

    def __init__(self, names: Iterable[str]) -> None:
        super().__init__(names)
        self._thread = threading.get_ident()

    def __contains__(self, name: object) -> bool:
        is_hidden = name == INDUCTOR and threading.get_ident() == self._thread
        return super().__contains__(name) and not is_hidden


@contextlib.contextmanager
def _inductor_stays_away(torch: Any) -> Iterator[None]:
    """Keep a profiler that starts from importing all of Inductor, 1.5 s of a core, to ask whether it has CUDA graphs.

    It asks `hasattr(torch, "_inductor")`, which imports it. Where nobody has, it has made no graphs; where they are
    asked for by its variable, the profiler looks as ever.
    """
    names = getattr(torch, "_lazy_modules", None)
    if not isinstance(names, set) or f"torch.{INDUCTOR}" in sys.modules or os.environ.get(GRAPHS):
        yield
        return
    torch._lazy_modules = _NotForThisThread(names)
    try:
        yield
    finally:
        torch._lazy_modules = names


def _is_taken(torch: Any) -> bool:
    """Return True if a profiler that is not ours records in this process, as far as torch tells."""
    return bool(torch.autograd.profiler._is_profiler_enabled or torch.autograd._profiler_enabled())


def _is_lost(profile: Any) -> bool:
    """Return True if torch has ended the session itself, as in a process that ends: writing nothing crashes it."""
    return not profile.profiler.kineto_results.trace_start_ns()


def _is_whole(path: Path) -> bool:
    """Return True if kineto came to the end of the file: what it writes after the list of events is there."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
            tail = file.read().rstrip()
    except FileNotFoundError:
        return False
    return tail.endswith(b"}") and b'"traceName"' in tail


def _all_threads() -> Any:
    """Return the setting that makes torch see all threads, None where this torch does not know it."""
    try:
        from torch._C._profiler import _ExperimentalConfig

        return _ExperimentalConfig(profile_all_threads=True)
    except (ImportError, TypeError):
        return None


class TorchTool(InMemory):
    """The tool `torch`."""

    name = "torch"
    about = "operators, kernels and phases by torch's profiler; opens in Perfetto"
    suffix = ".pt.trace.json.gz"
    must_tell = False
    shows: Mapping[What, ToolRank] = {
        "operators": ToolRank(
            on=("cpu", "cuda", "npu"), order=2, because="names every operator, with what it launches"
        ),
        "kernels": ToolRank(on=("cuda",), order=2, because="sees each kernel with the operator that launched it"),
        "communication": ToolRank(on=("cpu", "cuda"), order=2, because="names each collective of torch"),
        "timing": ToolRank(on=("cpu", "cuda", "npu"), order=2, because="has the phases as ranges among the operators"),
        "memory": ToolRank(
            on=("cpu", "cuda"), order=2, because="tells what each operator took and gave back", is_extra=True
        ),
    }

    def problem(self) -> str:
        """Two programs cannot hold the GPU's tracing interface."""
        if "cuda" in os.environ.get(TRACED, ""):
            return (
                "This worker was started ready for nsys, which holds the GPU's tracing: a torch trace would have no "
                "kernels. Record with nsys, or start the run with profile.nsys_ready off."
            )
        return ""

    def version(self) -> str:
        """Return the version of torch; kineto, which writes the trace, is built into it and has none of its own.

        Read from the installation: who takes over a dead worker's file does not import torch for that.
        """
        return f"torch {importlib.metadata.version('torch')} (kineto)"

    def recorder(self, what: str) -> TorchRecorder:
        """Return a recorder for one capture. What operators allocate is kept only where it is asked for: it is slow."""
        return TorchRecorder(has_memory=what == "memory")


PLUGIN = TorchTool()
