"""What the runner and the processes of a trainer say to each other: small JSON files in one folder of the run.

`<pid>.worker.json` says who a process is, `<pid>.ask.json` what it is to do, `<pid>.told.json` what came of that.
A file is there whole or not at all, and each is written by one side alone.
"""

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

Verb = Literal["start", "stop", "drop"]

MAX_BYTES = 1 << 20


def worker_path(folder: Path, pid: int) -> Path:
    """Return where a process says who it is: `pid rank world_size actor` (Ray's class or "") `node device problems`."""
    return folder / f"{pid}.worker.json"


def ask_path(folder: Path, pid: int) -> Path:
    """Return where the runner asks: `number verb runner` (its pid), and for a start `tool what folder name`."""
    return folder / f"{pid}.ask.json"


def told_path(folder: Path, pid: int) -> Path:
    """Return where it is answered: `number problem`, and of a stop `path size version sha256`."""
    return folder / f"{pid}.told.json"


def write(path: Path, message: Mapping[str, Any]) -> None:
    """Write a message. Raises: OSError."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        part.write_text(json.dumps(dict(message)), encoding="utf-8")
        part.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
        raise


def read(path: Path) -> Mapping[str, Any] | None:
    """Return a message, None where there is none that can be read."""
    try:
        if path.stat().st_size > MAX_BYTES:
            return None
        message = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return message if isinstance(message, dict) else None
