"""The room on the cluster's disks, where captures lie until they are here: by the readings that nodes send."""

from jobs.models import Run
from jobs.series import MIN_POINTS, read_series

READING = "disk_free_bytes"


def cluster_free_bytes(run: Run) -> int | None:
    """Return the room on the fullest disk of run directories, as its node last read it; None where none has told."""
    found = read_series(run_id=run.pk, names=[READING], num_points=MIN_POINTS).series
    newest = [one.y[-1] for one in found if one.attempt == run.latest_attempt and one.role == "node" and one.n]
    return int(min(newest)) if newest else None
