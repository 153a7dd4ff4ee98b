"""A thread in a process of a trainer that knows nothing of Pitwall: it records when the runner asks for it.

A process is a worker once torch.distributed is initialised in it; until then, and in every other process, the thread
only looks. It says who it is, then waits for requests (messages.py) and records with profiling.captures.recording, by
time: it does not know where a step begins. What is recorded when the process ends, profiling.captures.recording keeps.
Nothing here reaches the trainer's own work, and nobody waits for this thread.
"""

import contextlib
import os
import socket
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from profiling.attach import messages
from profiling.captures import recording
from profiling.captures.capture import sha256_of
from profiling.recorders.recorder import RecorderFailed

LOOK_SECONDS = 0.2

NO_STEPS = {"torch_pieces": "A piece ends with a step, and this trainer's processes do not tell of theirs. Use torch."}


class AttachedRecorder:
    """The recordings of this process, as the runner asks for them."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._pid = folder, os.getpid()
        self._who: Mapping[str, Any] | None = None
        self._number = 0  # of the request that was done last
        self._runner = 0
        self._is_recording = False
        self._writing: Path | None = None

    def look(self) -> None:
        """Say who this is if that is news, do what is asked for, and tell of a file that is there. Raises: OSError."""
        if not self._present():
            return
        message = messages.read(messages.ask_path(self._folder, self._pid))
        if message is not None and message.get("number", 0) > self._number:
            self._do(message)
        if self._writing is not None:
            self._tell_when_written(self._writing)
        if self._is_recording and not _is_there(self._runner):
            self._stop()  # nobody is left to end it; what is there may be found

    def _present(self) -> bool:
        """Return True if this is a worker, once that is said; again where rank or size have become others."""
        who = _who()
        if who is None:
            return self._who is not None
        if self._who is None or any(self._who[key] != value for key, value in who.items()):
            self._who = {**who, "problems": recording.problems() | NO_STEPS}
            messages.write(messages.worker_path(self._folder, self._pid), self._who)
        return True

    def _do(self, message: Mapping[str, Any]) -> None:
        self._number = int(message["number"])
        try:
            if message["verb"] == "start":
                self._start(message)
            elif message["verb"] == "stop":
                self._stop()
            else:
                self._is_recording = False
                recording.discard()
                self._tell()
        except Exception as error:  # whatever it is, it is the capture's affair alone
            self._tell(problem=str(error) if isinstance(error, RecorderFailed) else f"{type(error).__name__}: {error}")

    def _start(self, message: Mapping[str, Any]) -> None:
        _take_device()
        self._runner = int(message["runner"])
        tool, folder, name = str(message["tool"]), Path(message["folder"]), str(message["name"])
        recording.start(tool, folder=folder, name=name, what=str(message.get("what") or ""), is_beside=True)
        self._is_recording = True
        self._tell()

    def _stop(self) -> None:
        self._is_recording = False
        self._writing = recording.stop()

    def _tell_when_written(self, path: Path) -> None:
        outcome = recording.outcome(path)
        if outcome.problem:
            self._writing = None
            self._tell(problem=outcome.problem)
        elif outcome.size >= 0:
            self._writing = None
            self._tell(path=str(path), size=outcome.size, version=outcome.version, sha256=sha256_of(path))

    def _tell(self, **what: Any) -> None:
        message = {"number": self._number, "problem": "", **what}
        messages.write(messages.told_path(self._folder, self._pid), message)


def serve_requests(folder: Path) -> None:
    """Look for requests for as long as the process lives."""
    attached = AttachedRecorder(folder)
    while folder.is_dir():
        with contextlib.suppress(Exception):  # a full disk, for instance: it is tried again
            attached.look()
        time.sleep(LOOK_SECONDS)


def _who() -> Mapping[str, Any] | None:
    """Return who this process is as a worker; None where it is none (yet)."""
    dist = sys.modules.get("torch.distributed")
    try:
        if dist is None or not dist.is_initialized():
            return None
        rank, size = int(dist.get_rank()), int(dist.get_world_size())
    except Exception:  # it is being imported, or the group is just being left
        return None
    return {
        "pid": os.getpid(),
        "rank": rank,
        "world_size": size,
        "actor": _actor(),
        "node": socket.gethostname(),
        "device": "cuda" if sys.modules["torch"].cuda.is_initialized() else "cpu",
    }


def _actor() -> str:
    """Return the class of the Ray actor that this process is, "" if it is none."""
    ray = sys.modules.get("ray")
    try:
        worker = ray._private.worker.global_worker  # type: ignore[union-attr]  # None has no such attribute: no actor
        if worker.actor_id.is_nil():
            return ""
        return type(worker.actors[worker.actor_id]).__name__
    except Exception:  # of Ray's insides nothing is promised
        return ""


def _take_device() -> None:
    """Work on the device that this process works on: another one would be woken, and give memory for nothing."""
    torch: Any = sys.modules["torch"]
    if torch.cuda.is_initialized() and torch.cuda.device_count() > 1:
        torch.cuda.set_device(max(range(torch.cuda.device_count()), key=torch.cuda.memory_reserved))


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
