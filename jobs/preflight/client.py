"""Starts the trial process, which reads data, models and reward files that the web process must not touch itself.

`python -m jobs.engine.preflight.process` takes one JSON object and answers one; this side closes it in as far as this
machine can (jobs/preflight/sandbox.py), bounds its time, memory, output and environment, and turns every way it can go
wrong into a sentence beside a field.
"""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

from django.conf import settings

from jobs.preflight.sandbox import (
    HOUSE,
    MAX_MEMORY_BYTES,
    MAX_OUTPUT_BYTES,
    NOT_CONFINED,
    PACKAGES,
    Allowance,
    Level,
    closed,
    confinement,
)

COMMAND = (sys.executable, "-X", "faulthandler", "-m", "jobs.engine.preflight.process")
MAX_PARALLEL = 2
GRACE_SECONDS = 5.0
MAX_ANSWER_CHARS = 8 << 20  # the web process holds all of it
MAX_SENTENCE_CHARS = 4000
_ROUNDS = 20

_FIELDS = {
    "preview": "data.id",
    "reward": "reward.source",
    "algorithm": "knobs.algorithm.source",
    "model": "model.id",
    "config": "model.id",
}
_CODE = {"reward.source": "The reward", "knobs.algorithm.source": "Your algorithm"}
"""Fields that hold a person's own file, and what it is called."""
_KEPT_ENV = ("PATH", "HOME", "LANG", "TZ", "HF_HOME", "HF_HUB_CACHE")
_NETWORK_ENV = ("HF_ENDPOINT", "HF_HUB_OFFLINE", "HTTPS_PROXY", "https_proxy")
_FRAME = re.compile(r'^  File "(?P<file>.+)", line (?P<line>\d+) in (?P<function>\S+)', re.MULTILINE)
_slots = threading.BoundedSemaphore(MAX_PARALLEL)


class TrialFailed(Exception):
    """The trial says no: `field` is the dotted field of the spec, `message` a sentence for people."""

    def __init__(self, field: str, message: str) -> None:
        self.field = field
        self.message = message
        super().__init__(f"{field}: {message}")


class TrialUnavailable(TrialFailed):
    """This machine cannot try it, which says nothing about the spec: the engine's packages are not installed here."""


class TrialHindered(TrialUnavailable):
    """The code asked for what a trial is not given: a network, a file, a process. A run may have it."""


class PathNotAllowed(TrialFailed):
    """The console does not read this path for anybody; whether a run can, it does not know."""


def run_trial(
    op: Mapping[str, object],
    *,
    timeout_seconds: float,
    allowance: Allowance | None = None,
    command: Sequence[str] | None = None,
    env: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return the answer of the trial process to `op` (see docs/use/launch.md for the operations).

    `allowance` is what it may have beside packages and code; without one, nothing. `env` is added to the scrubbed
    environment. No process outlives the call.
    Raises: TrialFailed, also when the process hangs, dies or answers nonsense.
    """
    field = _FIELDS.get(str(op.get("op")), "spec")
    if not _slots.acquire(timeout=timeout_seconds):
        raise TrialFailed(field, f"The console was busy with other previews for {timeout_seconds:g} s. Try again.")
    try:
        with tempfile.TemporaryDirectory(prefix="pitwall-trial-") as folder:
            return _run(
                op, field, timeout_seconds, command or COMMAND, dict(env or {}), Path(folder), allowance or Allowance()
            )
    finally:
        _slots.release()


def _run(
    op: Mapping[str, object],
    field: str,
    timeout_seconds: float,
    command: Sequence[str],
    env: dict[str, str],
    folder: Path,
    allowance: Allowance,
) -> dict[str, Any]:
    level = confinement().level
    (folder / "own").mkdir()
    code_at = _code(folder) if level == "landlock" else HOUSE
    (folder / "in").write_text(json.dumps({**op, "level": level}), encoding="utf-8")
    # Output goes to files, so that the limit on file size bounds it and a flood cannot fill this process's memory.
    with (folder / "in").open("rb") as stdin, (folder / "out").open("w+b") as out, (folder / "err").open("w+b") as err:
        child = subprocess.Popen(
            _argv(level, command, allowance, folder, int(timeout_seconds) + 5),
            stdin=stdin,
            stdout=out,
            stderr=err,
            cwd=HOUSE,
            env=_scrubbed_env(folder / "own", code_at, allowance) | env,
            start_new_session=True,
        )
        try:
            code = child.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            raise TrialFailed(field, _hang_sentence(child, err, field, timeout_seconds)) from None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            if level != "namespaces":  # which end with their first process
                _end_what_is_left(folder / "own")
        return _answer(_read(out), _read(err), code, field)


def _argv(level: Level, command: Sequence[str], allowance: Allowance, folder: Path, seconds: int) -> Sequence[str]:
    if level == "none":
        return [sys.executable, "-c", _START, str(seconds), *command]
    allowance = replace(allowance, read=(*allowance.read, folder / "code"))
    return closed(level, command, allowance=allowance, folder=folder / "own", seconds=seconds)


def _code(folder: Path) -> Path:
    """Return a place where the packages of a trial stand alone: beside them the tree has what nobody should list."""
    place = folder / "code"
    place.mkdir()
    for package in PACKAGES:
        (place / package.name).symlink_to(package)
    return place


# Limits are set in a fresh interpreter that then becomes the command: a preexec function is not safe among threads.
_START = f"""
import os, resource, sys
def limit(kind, value):
    hard = resource.getrlimit(kind)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (value, value))
limit(resource.RLIMIT_CORE, 0)
limit(resource.RLIMIT_CPU, int(sys.argv[1]))
limit(resource.RLIMIT_FSIZE, {MAX_OUTPUT_BYTES})
try:
    limit(resource.RLIMIT_AS, {MAX_MEMORY_BYTES})
except (ValueError, OSError):
    pass  # macOS knows the limit and refuses to set it
if sys.platform == "linux":
    import ctypes
    ctypes.CDLL(None).prctl(1, 9, 0, 0, 0)  # PR_SET_PDEATHSIG, SIGKILL: a console that is killed leaves no trial behind
os.execv(sys.argv[2], sys.argv[2:])
"""


def _scrubbed_env(folder: Path, code_at: Path, allowance: Allowance) -> dict[str, str]:
    names = (*_KEPT_ENV, *_NETWORK_ENV) if allowance.has_network else _KEPT_ENV
    environment = {name: os.environ[name] for name in names if name in os.environ}
    if allowance.has_network:
        environment |= {"HF_TOKEN": settings.HF_TOKEN} if settings.HF_TOKEN else {}
        environment["HF_HUB_DISABLE_XET"] = "1"  # it would write beside the hub's cache
    else:
        environment["HF_HUB_OFFLINE"] = "1"
    return environment | {
        "PYTHONPATH": str(code_at),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONIOENCODING": "utf-8",
        "TMPDIR": str(folder),
        "TOKENIZERS_PARALLELISM": "false",
        "OMP_NUM_THREADS": "1",
    }


def _end_what_is_left(folder: Path) -> None:
    """Kill what the trial started in sessions of its own, which a signal to its group has missed.

    Everything below it has the trial's own TMPDIR in its environment, whoever its parent is by now. Linux only.
    """
    mark = f"TMPDIR={folder}".encode()
    for _ in range(_ROUNDS):  # what is just being forked shows in the next one
        pids = [int(file.parent.name) for file in Path("/proc").glob("[0-9]*/environ") if mark in _environment(file)]
        if not pids:
            return
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _environment(file: Path) -> list[bytes]:
    try:
        return file.read_bytes().split(b"\0")
    except OSError:
        return []  # somebody else's process, or gone


def _read(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read(MAX_OUTPUT_BYTES).decode(errors="replace")


def _hang_sentence(child: subprocess.Popen[bytes], err: IO[bytes], field: str, timeout_seconds: float) -> str:
    """Ask the hanging child where it stands (faulthandler answers SIGABRT with a traceback) and say so."""
    child.send_signal(signal.SIGABRT)
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(GRACE_SECONDS)
    what = {
        "data.id": "Reading the data",
        "model.id": "Reading the model's configuration",
        **_CODE,
    }.get(field, "The check")
    where = _where(_read(err)) if field in _CODE else ""
    advice = " Bound its loops and waits." if field in _CODE else " Try again, or use a smaller or local copy."
    return f"{what} did not end within {timeout_seconds:g} s{where}.{advice}"


def _where(traceback: str) -> str:
    """Say where the innermost frame of the user's own file stands, or nothing if there is none."""
    current = traceback.partition("Current thread")[2] or traceback
    for frame in _FRAME.finditer(current):
        file = frame["file"]
        if not file.startswith(("/", "<")):  # what a person gave has a name, and no place
            return f": it hangs in line {frame['line']}, in {frame['function']}"
    return ""


def _answer(out: str, err: str, code: int, field: str) -> dict[str, Any]:
    lines = out.strip().splitlines()
    if len(out) > MAX_ANSWER_CHARS:
        raise TrialFailed(field, f"The process that tries it answered more than {MAX_ANSWER_CHARS >> 20} MiB.")
    try:
        answer = json.loads(lines[-1]) if lines else None
    except (ValueError, RecursionError):  # code that is tried can write the answer itself
        answer = None
    if isinstance(answer, dict) and isinstance(answer.get("problem"), dict):
        problem = answer["problem"]
        kind = TrialHindered if problem.get("is_hindered") else TrialFailed
        said = str(problem.get("message") or "The check failed.")[:MAX_SENTENCE_CHARS]
        raise kind(str(problem.get("field") or field)[:MAX_SENTENCE_CHARS], said)
    if isinstance(answer, dict) and code == 0:
        return answer
    if code == NOT_CONFINED:
        raise TrialUnavailable(field, f"Not tried: this machine could not close it in ({err.strip()[-200:]}).")
    if code == 1 and err.strip().splitlines()[-1:] and err.strip().splitlines()[-1].startswith("ModuleNotFoundError"):
        raise TrialUnavailable(field, "Not checked here: the engine's packages are not installed beside the console.")
    last_line = err.strip().splitlines()[-1][:300] if err.strip() else "it said nothing"
    ended_by = -code if code < 0 else code - 128  # of what ran in namespaces
    is_signal = ended_by in set(signal.Signals)
    how = f"was ended by {signal.Signals(ended_by).name}" if is_signal else f"ended with exit code {code}"
    raise TrialFailed(field, f"The process that tries it {how} without an answer: {last_line}")
