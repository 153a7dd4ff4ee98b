"""The room on the cluster's disks, where captures lie until they are here: by the readings that nodes send."""

import math
from datetime import datetime, timedelta

from jobs.models import Run
from jobs.telemetry.series import Window, read_series

READING = "disk_free_bytes"
RECENT = timedelta(minutes=5)
_POINTS = 1000  # more than a node sends in that time: its newest is one of them


def cluster_free_bytes(run: Run, *, now: datetime) -> int | None:
    """Return the room on the fullest disk of run directories, as its node last read it; None where none has lately."""
    window = Window(low=int((now - RECENT).timestamp() * 1e9))
    found = read_series(run_id=run.pk, names=[READING], num_points=_POINTS, window=window).series
    newest = [float(one.y[-1]) for one in found if one.attempt == run.latest_attempt and one.role == "node" and one.n]
    known = [room for room in newest if math.isfinite(room) and room >= 0]
    return int(min(known)) if known else None
