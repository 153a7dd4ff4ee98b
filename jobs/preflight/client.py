"""Starts the trial process, which reads data, models and reward files that the web process must not touch itself.

`python -m jobs.engine.preflight.process` takes one JSON object and answers one; this side bounds its time, memory,
output and environment, and turns every way it can go wrong into a sentence beside a field. It is no sandbox against a
hostile author: who may launch a run may run code on the cluster. It keeps a slow or broken file from harming the
console.
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
from pathlib import Path
from typing import IO, Any

HOUSE = Path(__file__).resolve().parents[2]
COMMAND = (sys.executable, "-X", "faulthandler", "-m", "jobs.engine.preflight.process")
MAX_PARALLEL = 2
MAX_OUTPUT_BYTES = 32 << 20
MAX_MEMORY_BYTES = 8 << 30  # of address space; readers of Parquet map far more than they touch
GRACE_SECONDS = 5.0
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
_KEPT_ENV = ("PATH", "HOME", "LANG", "TZ", "HF_HOME", "HF_ENDPOINT", "HF_HUB_OFFLINE", "HTTPS_PROXY", "https_proxy")
_FRAME = re.compile(r'^  File "(?P<file>.+)", line (?P<line>\d+) in (?P<function>\S+)', re.MULTILINE)
_HUB_TOKEN = "HF_TOKEN"  # noqa: S105 (a name, not a token) opens gated models and data; never shown to a reward file
_slots = threading.BoundedSemaphore(MAX_PARALLEL)


class TrialFailed(Exception):
    """The trial says no: `field` is the dotted field of the spec, `message` a sentence for people."""

    def __init__(self, field: str, message: str) -> None:
        self.field = field
        self.message = message
        super().__init__(f"{field}: {message}")


class TrialUnavailable(TrialFailed):
    """This machine cannot try it, which says nothing about the spec: the engine's packages are not installed here."""


def run_trial(
    op: Mapping[str, object],
    *,
    timeout_seconds: float,
    command: Sequence[str] | None = None,
    env: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return the answer of the trial process to `op` (see docs/use/launch.md for the operations).

    `env` is added to the scrubbed environment. No process outlives the call.
    Raises: TrialFailed, also when the process hangs, dies or answers nonsense.
    """
    field = _FIELDS.get(str(op.get("op")), "spec")
    if not _slots.acquire(timeout=timeout_seconds):
        raise TrialFailed(field, f"The console was busy with other previews for {timeout_seconds:g} s. Try again.")
    try:
        with tempfile.TemporaryDirectory(prefix="pitwall-trial-") as folder:
            return _run(op, field, timeout_seconds, command or COMMAND, dict(env or {}), Path(folder))
    finally:
        _slots.release()


def _run(
    op: Mapping[str, object],
    field: str,
    timeout_seconds: float,
    command: Sequence[str],
    env: dict[str, str],
    folder: Path,
) -> dict[str, Any]:
    # Output goes to files, so that the limit on file size bounds it and a flood cannot fill this process's memory.
    with (folder / "in").open("w+b") as stdin, (folder / "out").open("w+b") as out, (folder / "err").open("w+b") as err:
        stdin.write(json.dumps(dict(op)).encode())
        stdin.seek(0)
        child = subprocess.Popen(
            [sys.executable, "-c", _START, str(int(timeout_seconds) + 5), *command],
            stdin=stdin,
            stdout=out,
            stderr=err,
            cwd=HOUSE,
            env=_scrubbed_env(folder, with_hub_token=field not in _CODE) | env,
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
            _end_what_is_left(folder)
        return _answer(_read(out), _read(err), code, field)


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


def _scrubbed_env(folder: Path, *, with_hub_token: bool) -> dict[str, str]:
    names = (*_KEPT_ENV, _HUB_TOKEN) if with_hub_token else _KEPT_ENV
    environment = {name: os.environ[name] for name in names if name in os.environ}
    return environment | {
        "PYTHONPATH": str(HOUSE),
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
        is_ours = any(
            file.startswith(str(prefix)) for prefix in (sys.prefix, sys.base_prefix, HOUSE, "<frozen", "<string>")
        )
        if not is_ours:
            return f": it hangs in line {frame['line']}, in {frame['function']}"
    return ""


def _answer(out: str, err: str, code: int, field: str) -> dict[str, Any]:
    lines = out.strip().splitlines()
    try:
        answer = json.loads(lines[-1]) if lines else None
    except ValueError:
        answer = None
    if isinstance(answer, dict) and isinstance(answer.get("problem"), dict):
        problem = answer["problem"]
        raise TrialFailed(str(problem.get("field") or field), str(problem.get("message") or "The check failed."))
    if isinstance(answer, dict) and code == 0:
        return answer
    if code == 1 and err.strip().splitlines()[-1:] and err.strip().splitlines()[-1].startswith("ModuleNotFoundError"):
        raise TrialUnavailable(field, "Not checked here: the engine's packages are not installed beside the console.")
    last_line = err.strip().splitlines()[-1][:300] if err.strip() else "it said nothing"
    how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    raise TrialFailed(field, f"The process that tries it {how} without an answer: {last_line}")
