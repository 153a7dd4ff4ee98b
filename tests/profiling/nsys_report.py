"""Make a report and read it the way its users do: by nsys itself."""

import sqlite3
import subprocess
import sys
from pathlib import Path


def profiled(report: Path, *program: str) -> None:
    """Run a Python program under `nsys profile`; again where nsys loses a launch beside others, as it does, by its exit
    code or by writing no report.

    Raises: AssertionError, with what nsys said, if it does so three times.
    """
    command = ["nsys", "profile", "-s", "none", "--cpuctxsw=none", "-t", "nvtx", "-f", "true", "-o", str(report)]
    said = ""
    for _ in range(3):
        done = subprocess.run(
            [*command, sys.executable, *program], check=False, capture_output=True, cwd=report.parent, timeout=300
        )
        if not done.returncode and report.exists():
            return
        said = (done.stdout + done.stderr).decode(errors="replace")
    raise AssertionError(f"nsys wrote no report: {said}")


def ranges(report: Path) -> list[tuple[str, int]]:
    """Return the ranges in our domain, in order of time: name and step."""
    target = report.with_suffix(".sqlite")
    subprocess.run(["nsys", "export", "-q", "true", "-t", "sqlite", "-f", "true", "-o", target, report], check=True)
    with sqlite3.connect(f"file:{target}?mode=ro", uri=True) as database:
        (domain,) = database.execute("SELECT domainId FROM NVTX_EVENTS WHERE eventType = 75 AND text = 'pitwall'")
        rows = database.execute(
            "SELECT coalesce(n.text, s.value), n.int64Value "
            "FROM NVTX_EVENTS n LEFT JOIN StringIds s ON s.id = n.textId "
            "WHERE n.eventType IN (59, 60) AND n.domainId = ? AND n.end IS NOT NULL ORDER BY n.start",
            domain,
        )
        return [(str(name), step) for name, step in rows]
