"""The shards of a trainer's newest checkpoint as a Hugging Face folder, made by the trainer's own program.

Only where the trainer has left no model itself: what is made is handed over like any model, to be tried and downloaded.
"""

import os
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import psutil

from jobs.adapters.adapter import adapter
from jobs.adapters.captures import files_below
from jobs.catalog.spec.runspec import RunSpec

MERGE_SECONDS = 3600.0
LOOK_SECONDS = 0.2
ROOM = 2.0
"""Times the bytes of the checkpoint that host memory must have free: the program holds all shards and the whole."""

LOG = "log/merge-0.stdout"


def merge_shards(
    *,
    spec: RunSpec,
    python: str,
    run_dir: Path,
    environ: Mapping[str, str],
    say: Callable[[str], None],
    give_up: Callable[[], bool],
) -> bool:
    """Make `model/merged_<step>` of the newest checkpoint; return whether it is there. Says why, where it is not.

    `give_up` is asked several times a second: a runner that is to end leaves the shards as they are.
    """
    checkpoints = adapter(spec.trainer.name).checkpoints
    try:
        step, folder = max(checkpoints.saved(spec=spec, run_dir=run_dir).items(), default=(0, run_dir))
    except OSError:
        return False
    target, draft = run_dir / "model" / f"merged_{step}", run_dir / "model" / f".merged_{step}.draft"
    command = checkpoints.merge_command(spec=spec, python=python, folder=folder, target=draft) if step else ()
    if not command:
        return False
    size, free = sum(size for _, size in files_below(folder)), psutil.virtual_memory().available
    if size * ROOM > free:
        say(f"Checkpoint {step} is not merged: it has {size >> 30} GiB, and {free >> 30} GiB of host memory are free.")
        return False
    say(f"Merging the shards of checkpoint {step} into a Hugging Face folder.")
    draft.mkdir(parents=True, exist_ok=True)
    code = _run(command, environ, run_dir, give_up)
    if code == 0:
        os.replace(draft, target)  # noqa: PTH105 (both names are in one folder; one call)
        return True
    why = "it took too long or the run was ended" if code is None else f"exit code {code}: {_last_line(run_dir / LOG)}"
    say(f"Checkpoint {step} is not merged ({why}). The output is in {LOG}.")
    return False


def _run(
    command: tuple[str, ...], environ: Mapping[str, str], run_dir: Path, give_up: Callable[[], bool]
) -> int | None:
    """Return the exit code; None where it was ended here."""
    deadline = time.monotonic() + MERGE_SECONDS
    with (run_dir / LOG).open("ab") as log:
        process = subprocess.Popen(
            command, cwd=run_dir, env=dict(environ), stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
        )
        while (code := process.poll()) is None:
            if give_up() or time.monotonic() > deadline:
                process.kill()
                process.wait()
                return None
            time.sleep(LOOK_SECONDS)
    return code


def _last_line(path: Path) -> str:
    try:
        lines = path.read_bytes()[-4096:].decode("utf-8", "replace").strip().splitlines()
    except OSError:
        return ""
    return lines[-1] if lines else "no output"
