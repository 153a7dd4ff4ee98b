"""Read a report the way its users do: nsys itself exports it."""

import sqlite3
import subprocess
from pathlib import Path


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
