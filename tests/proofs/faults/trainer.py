"""A run on the cluster, seen from its own directory and the process table: which process is which, what it wrote."""

import contextlib
import json
from pathlib import Path
from typing import Any

import psutil


def processes(run: str) -> list[psutil.Process]:
    """Return every process that carries the run's mark, but Ray's own supervision of its jobs."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.status() == psutil.STATUS_ZOMBIE or process.environ().get("PITWALL_RUN") != run:
                continue
            if "JobSupervisor" not in " ".join(process.cmdline()):
                found.append(process)
    return found


def runner(run: str) -> psutil.Process | None:
    """Return the run's runner."""
    return next((p for p in processes(run) if "-m jobs.runner" in _line(p) and "sh -c" not in _line(p)), None)


def worker(run: str, run_dir: Path, role: str) -> psutil.Process | None:
    """Return rank 0 of a role: the process that writes its log, not one of its children."""
    log = str(run_dir / "log" / f"{role}-0.stdout")
    writing = {p.pid: p for p in processes(run) if _writes(p, log)}
    return next((p for p in writing.values() if _parent(p) not in writing), None)


def about(process: psutil.Process) -> str:
    """Return what a process is, in a line."""
    parent = psutil.Process(_parent(process)) if psutil.pid_exists(_parent(process)) else None
    return f"{process.pid} {_line(process)[:120]} (of {_parent(process)} {_line(parent)[:60] if parent else 'gone'})"


def events(run_dir: Path) -> list[dict[str, Any]]:
    """Return every whole line that the trainer has written."""
    try:
        text = (run_dir / "events.jsonl").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return [json.loads(line) for line in text.split("\n")[:-1] if line]


def steps_done(run_dir: Path) -> int:
    """Return how many steps the trainer has reported."""
    return max((e["step"] for e in events(run_dir) if e["kind"] == "metric" and e["role"] == "driver"), default=0)


def _line(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.Error):
        return " ".join(process.cmdline())
    return ""


def _writes(process: psutil.Process, log: str) -> bool:
    with contextlib.suppress(OSError):
        return str(Path(f"/proc/{process.pid}/fd/1").readlink()) == log
    return False


def _parent(process: psutil.Process) -> int:
    with contextlib.suppress(psutil.Error):
        return int(process.ppid())
    return 0
