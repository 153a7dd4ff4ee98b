"""The process around every role: it runs the role's object, and hands spans, readings and log lines over with each
result.

Imports nothing heavy, so that the driver can create all actors at once and their imports overlap.
"""

import importlib
import operator
import os
import socket
import sys
import threading
import traceback
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import psutil

from jobs.engine.device import load_device
from jobs.engine.problem import RunProblem
from jobs.engine.workers import flight
from jobs.engine.workers.role_trace import RoleTrace
from profiling import profile
from profiling.captures import recording
from profiling.captures.capture import recordings, stem
from profiling.config import Marks, is_torch
from profiling.recorders.recorder import RecorderFailed, load_tool
from profiling.stacks import stacks

CAPTURES = "captures"
"""The concurrency group of an actor in which recordings are started and fetched while a call is under way."""

LOOKING = "looking"
"""One of its own for looking where the threads stand: what recordings wait for may be just what hangs."""

UNWRITABLE = "no run directory"  # begins the error of a worker whose node does not take its files


@dataclass(frozen=True, slots=True, kw_only=True)
class CallResult:
    """What a call gives back: its value, and what the process has to report since the last one."""

    value: Any
    spans: tuple[profile.Span, ...]
    readings: Mapping[str, float]
    lines: Mapping[str, list[str]]


class RoleError(RuntimeError):
    """A role's method raised; made of text only, so that it can be unpickled anywhere."""

    def __init__(self, text: str, field: str, trace: str) -> None:
        self.text, self.field, self.trace = text, field, trace
        super().__init__(text, field, trace)

    def __str__(self) -> str:
        return self.text


class LogQueue:
    """The one actor through which log lines reach the driver between results: (role, rank, stream, lines)."""

    def __init__(self) -> None:
        self._entries: list[tuple[str, int, str, list[str]]] = []

    def put(self, role: str, rank: int, stream: str, lines: list[str]) -> None:
        """Append lines."""
        self._entries.append((role, rank, stream, lines))

    def take(self) -> list[tuple[str, int, str, list[str]]]:
        """Return all entries, oldest first, and forget them."""
        taken, self._entries = self._entries, []
        return taken


class OutputRedirect:
    """Send this process's stdout and stderr to `<folder>/<role>-<rank>.<stream>` and read new lines from there.

    A file, not a pipe: what a dying process wrote last is still there. `problem` says why there is none, if so.
    """

    def __init__(self, folder: Path, role: str, rank: int) -> None:
        self._lock = threading.Lock()
        self._files: dict[str, BinaryIO] = {}
        self.problem = ""
        try:
            self._open(folder, role, rank)
        except OSError as error:
            self.problem = (
                f"the node {socket.gethostname()} does not take files in {folder.parent} ({error.strerror or error})"
            )

    def _open(self, folder: Path, role: str, rank: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for stream, descriptor in (("stdout", 1), ("stderr", 2)):
            path = folder / f"{role}-{rank}.{stream}"
            target = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            os.dup2(target, descriptor)
            os.close(target)
            reader = path.open("rb")
            reader.seek(0, os.SEEK_END)
            self._files[stream] = reader
        sys.stdout = os.fdopen(os.dup(1), "w", buffering=1, errors="replace")
        sys.stderr = os.fdopen(os.dup(2), "w", buffering=1, errors="replace")

    def new_lines(self) -> dict[str, list[str]]:
        """Return the complete lines written since the last call, by stream; streams without any are left out."""
        by_stream = {}
        with self._lock:
            for stream, reader in self._files.items():
                begin = reader.tell()
                data = reader.read()
                end = data.rfind(b"\n") + 1
                reader.seek(begin + end)
                if end:
                    by_stream[stream] = data[:end].decode(errors="replace").splitlines()
        return by_stream


class Actor:
    """Hold one role's object. `start` builds it; every other method of it is reached through `call`."""

    def __init__(self, *, role: str, rank: int, log_dir: str, queue: Any, marks: Marks = "auto") -> None:
        warnings.filterwarnings("ignore")
        os.environ.update(
            {"PYTHONWARNINGS": "ignore", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
        )
        _use_interface_of_node()
        self._role, self._rank, self._queue, self._marks = role, rank, queue, marks
        self._recordings = recordings(Path(log_dir).parent)
        self._traced: set[Path] = set()
        self._capture = OutputRedirect(Path(log_dir), role, rank)
        self._process = psutil.Process()
        self._target: Any = None
        self._calls = threading.Lock()  # held by the call under way
        self._own_trace = RoleTrace(self._calls)
        self._caller = 0  # its thread
        self._held: socket.socket | None = None  # the port of `address`
        self._flusher = threading.Thread(target=self._flush_lines, daemon=True)
        self._flusher.start()

    def address(self) -> CallResult:
        """Return this node's address and a port that is free on it, and stays so until the next call has ended."""
        from jobs.engine.workers.address import held_port, node_address

        def hold() -> tuple[str, int]:
            self._held = held_port(node_address())
            host, port = self._held.getsockname()
            return host, port

        return self._run(hold, phase="", step=-1)

    def visible_devices(self) -> CallResult:
        """Return the accelerators that Ray gave this process, "" if none."""
        return self._run(lambda: os.environ.get("CUDA_VISIBLE_DEVICES", ""), phase="", step=-1)

    def start(self, target: str, arguments: Mapping[str, Any]) -> CallResult:
        """Import `module:Class` and build it with `arguments`: where the heavy libraries are imported."""
        if self._capture.problem:
            raise RoleError(f"{UNWRITABLE}: {self._capture.problem}", "", "")
        device = load_device(str(arguments["device"])) if "device" in arguments else None
        profile.configure(self._marks, device=device)
        module, _, name = target.partition(":")

        def build() -> None:
            self._target = getattr(importlib.import_module(module), name)(**arguments)

        return self._listening(self._run(build, phase="load", step=0))

    def call(
        self, method: str, step: int, phase: str, arguments: tuple[Any, ...], options: Mapping[str, Any]
    ) -> CallResult:
        """Call a method of the role's object, or of what it holds (`critic.update`); with a `phase`, inside a mark of
        it.
        """

        def body() -> Any:
            return operator.attrgetter(method)(self._target)(*arguments, **options)

        return self._listening(self._run(body, phase=phase, step=step))

    # -- captures, recorded in this process (profiling.captures.recording) --
    # Those of steps come between the calls; others, and the fetching of files, in CAPTURES, beside the call under way.

    def profilers(self) -> dict[str, str]:
        """Return for each tool why it cannot record here, "" if it can."""
        return recording.problems()

    def start_recording(self, tool: str, capture: str, *, is_beside: bool = False, what: str = "") -> str:
        """Begin to record; return why not, "" if it has begun. `is_beside` says that calls have another thread."""
        name = stem(capture, f"{self._role}-{self._rank}")
        try:
            if is_torch(tool) and getattr(self._target, "traces_itself", False):
                return self._own_trace.start(self._target, self._recordings / name)
            recording.start(tool, folder=self._recordings, name=name, is_beside=is_beside, what=what)
        except Exception as error:  # never a reason to end training
            return _sentence(error)
        return ""

    def stop_recording(self) -> tuple[list[str], str]:
        """End the recording; return where its files will be, and why there will be none."""
        try:
            if not self._own_trace.is_recording:
                return [str(recording.stop())], ""
            paths, problem = self._own_trace.stop()
            self._traced.update(paths)
            return list(map(str, paths)), problem
        except Exception as error:  # as above
            return [], _sentence(error)

    def recording_outcome(self, path: str) -> tuple[int, str, str]:
        """Return the size of a file that was recorded here, -1 while it is written, why there is none, and what made
        it.
        """
        if Path(path) in self._traced:
            return Path(path).stat().st_size, "", load_tool("torch").version()
        outcome = recording.outcome(Path(path))
        return outcome.size, outcome.problem, outcome.version

    def read_recording(self, path: str, offset: int, size: int) -> bytes:
        """Return a piece of a file that was recorded here."""
        with Path(path).open("rb") as file:
            file.seek(offset)
            return file.read(size)

    def remove_recording(self, path: str) -> None:
        """Remove a file that the driver has."""
        Path(path).unlink(missing_ok=True)

    def stacks(self) -> dict[str, tuple[str, ...]]:
        """Return where every thread of this process stands, this one and those that wait for lines left out."""
        own_threads = {threading.get_ident(), self._flusher.ident or 0}
        return stacks(without=own_threads, main=self._caller)

    def flight(self) -> bytes:
        """Return the newest collectives of this process, b"" where they are not recorded."""
        return flight.dump()

    def _listening(self, answer: CallResult) -> CallResult:
        """The call that was to listen on the port of `address` has ended: it does, or will not."""
        if self._held is not None:
            self._held.close()
            self._held = None
        return answer

    def _run(self, body: Any, *, phase: str, step: int) -> CallResult:
        if step >= 0:
            recording.at_step(step)
        self._caller = threading.get_ident()  # with CAPTURES beside them, Ray's calls have a thread of their own
        try:
            with self._calls:
                try:
                    if phase:
                        with profile.mark(phase, step=step):
                            value = body()
                    else:
                        value = body()
                finally:
                    self._own_trace.between_calls()
        except SystemExit:  # of `exit_actor`; once Ray knows, it may end this process before a trace is written
            recording.leave()
            raise
        except RunProblem as problem:
            raise RoleError(problem.message, problem.field, "") from None
        except Exception as error:
            text = traceback.format_exception_only(error)[-1].strip()
            print(traceback.format_exc(), file=sys.stderr, flush=True)
            raise RoleError(text, "", traceback.format_exc()) from None
        readings = {"memory_bytes": float(self._process.memory_info().rss)}
        if hasattr(self._target, "readings"):
            readings |= self._target.readings()
        spans = tuple(_with_step(span, step) for span in profile.drain())
        return CallResult(value=value, spans=spans, readings=readings, lines=self._capture.new_lines())

    def _flush_lines(self) -> None:
        """Once a second, for the times when no result is under way."""
        while True:
            threading.Event().wait(1.0)
            for stream, lines in self._capture.new_lines().items():
                self._queue.put.remote(self._role, self._rank, stream, lines)


def _sentence(error: Exception) -> str:
    return str(error) if isinstance(error, RecorderFailed) else f"{type(error).__name__}: {error}"


def _with_step(span: profile.Span, step: int) -> profile.Span:
    """Give details marked inside a role the step of the call they belong to."""
    if span.step >= 0:
        return span
    return span._replace(step=step)


def _use_interface_of_node() -> None:
    """Tell gloo which network interface carries this node's Ray address; by itself it looks the host name up, which may
    fail.
    """
    from jobs.engine.workers.address import interface_of, node_address

    name = interface_of(node_address())
    if name:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", name)
