"""The one owner of recordings in a process: whatever the tool, there is never more than one at a time.

`start`, then `at_step` before each piece of work, then `stop`, which returns when the recording has ended; the file is
written beside the work that goes on, and `outcome` says when it is there. The facade's marks are ranges of the
recording meanwhile.
"""

import atexit
import contextlib
import os
import threading
from dataclasses import dataclass, field
from pathlib import Path

from profiling import profile
from profiling.captures.capture import leaving_sign
from profiling.recorders.recorder import Recorder, RecorderFailed, Tool, WrongThread, load_tool, tool_names, version_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a recording: `size` is -1 while it is written; `problem` says why there is no file.

    `version` says what made the file ("torch 2.9.0 (kineto)"), "" while it is written or where nobody knows.
    """

    path: Path
    size: int = -1
    problem: str = ""
    version: str = ""


@dataclass(slots=True, kw_only=True)
class _Current:
    tool: Tool
    recorder: Recorder
    path: Path
    marks: str
    has_attached: bool
    step: int = -1
    steps: threading.Lock = field(default_factory=threading.Lock)
    is_stopping: bool = False
    has_ended: bool = False  # and its file is being written, by `writer` or by the thread that ends the process
    writer: threading.Thread | None = None


WRITER_SECONDS = 60.0

_lock = threading.Lock()
_current: _Current | None = None
_outcomes: dict[Path, Outcome] = {}


def problems() -> dict[str, str]:
    """Return for each tool why it cannot record in this process, "" if it can."""
    return {name: load_tool(name).problem() for name in tool_names()}


def start(tool: str, *, folder: Path, name: str, is_beside: bool = False, what: str = "") -> Path:
    """Begin to record with `tool` ("torch", "nsys"); return the file that will be made, `<folder>/<name><suffix>`.

    `what` is to be seen in it (profiling.config.What), "" for the usual. With `is_beside` another thread than this one
    does the work that is meant. Waits for the file of the recording before. Raises: RecorderFailed, also if another
    recording is under way in this process.
    """
    global _current
    before = _current
    if before is not None and before.writer is not None:
        before.writer.join(WRITER_SECONDS)
    with _lock:
        if _current is not None:
            doing = "written" if _current.has_ended else "recorded"
            raise RecorderFailed(f"{_current.path.name} is still being {doing} in this process. Ask again afterwards.")
        chosen = load_tool(tool)
        if problem := chosen.problem():
            raise RecorderFailed(problem)
        path = folder / f"{name}{chosen.suffix}"
        recorder = chosen.recorder(what)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if is_beside and not recorder.sees_other_threads():
                raise RecorderFailed(f"This {tool} records only the thread that starts it. Record whole steps instead.")
            recorder.start(path)
        except RecorderFailed:
            recorder.discard()
            raise
        except Exception as error:  # a tool's fault of any kind is the capture's, never the training's
            recorder.discard()
            raise RecorderFailed(f"{tool} did not start: {type(error).__name__}: {error}") from error
        attached = profile.attach(recorder.marks)
        _current = _Current(tool=chosen, recorder=recorder, path=path, marks=recorder.marks, has_attached=attached)
        return path


def at_step(step: int) -> None:
    """Say that the work from here on is for `step`; never raises. Without a recording it does nothing."""
    current = _current
    if current is None or current.has_ended or current.step == step:
        return
    with current.steps, contextlib.suppress(Exception):  # a range that is missing is a flaw of the recording alone
        if current.is_stopping:
            return
        before, current.step = current.step, step
        if before >= 0:
            current.recorder.end_step()
        current.recorder.begin_step(step)


def stop() -> Path:
    """End the recording and let the file be written by a thread; return its path. Raises: RecorderFailed.

    Where the process is ending meanwhile, and writes it already, there is nothing left to do.
    """
    with _lock:
        if _current is not None and _current.has_ended and _current.writer is None:
            return _current.path
        current = _end()
        current.writer = threading.Thread(target=_write, args=(current,), name="recording", daemon=True)
        current.writer.start()
    return current.path


def _end() -> _Current:
    """End the recording, and return it; the caller holds the lock, and sees to the file. Raises: RecorderFailed."""
    current = _current
    if current is None or current.has_ended:
        raise RecorderFailed("Nothing is being recorded in this process.")
    try:
        with current.steps:
            current.is_stopping = True  # work goes on in another thread, and may come to its next step now
            if current.step >= 0:
                current.recorder.end_step()
        current.recorder.stop()
    except WrongThread:
        current.is_stopping = False
        raise
    except Exception as error:
        _forget(current)
        raise error if isinstance(error, RecorderFailed) else RecorderFailed(_error_text(error)) from error
    _detach(current)
    current.has_ended = True
    _outcomes[current.path] = Outcome(path=current.path)
    return current


@atexit.register
def leave() -> None:
    """Write what is being recorded, since this process ends: at SIGTERM there is time for it.

    In this thread: an interpreter that ends starts no other one. A file beside the recording says so meanwhile, to
    who would end this process.
    """
    current = _current
    if current is None:
        return
    sign = leaving_sign(current.path.parent, os.getpid())
    with contextlib.suppress(OSError):
        sign.touch()
    try:
        _keep(current)
    finally:
        with contextlib.suppress(OSError):
            sign.unlink(missing_ok=True)


def _keep(current: _Current) -> None:
    ended = None
    if not _lock.acquire(timeout=WRITER_SECONDS):
        return
    try:
        if not current.has_ended:  # nobody has ended it while this waited for the lock
            ended = _end()
    except RecorderFailed:
        return
    finally:
        _lock.release()
    if ended is not None:
        _write(ended)
    elif current.writer is not None:
        current.writer.join(WRITER_SECONDS)


def outcome(path: Path) -> Outcome:
    """Return what has become of the recording whose file is `path`."""
    return _outcomes.get(path) or Outcome(path=path, problem=f"{path.name} was not recorded in this process.")


def discard() -> None:
    """Drop a recording that nobody wants any more."""
    with _lock:
        current = _current
        if current is None or current.has_ended:
            return
        _forget(current)


def _forget(current: _Current) -> None:
    global _current
    _detach(current)
    current.recorder.discard()
    _current = None


def _detach(current: _Current) -> None:
    if current.has_attached:
        profile.detach(current.marks)


def _write(current: _Current) -> None:
    global _current
    try:
        current.recorder.write()
        outcome = Outcome(path=current.path, size=current.path.stat().st_size, version=version_of(current.tool))
    except Exception as error:  # as in `start`
        outcome = Outcome(
            path=current.path, problem=str(error) if isinstance(error, RecorderFailed) else _error_text(error)
        )
    with _lock:
        _outcomes[current.path] = outcome
        _current = None


def _error_text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
