"""The engine with a rank that stands still for a while, and a hang watch that waits for seconds, not minutes."""

import math
import os
import sys
import time
from pathlib import Path
from typing import Any

from jobs.engine.failures import hang_watch
from jobs.engine.roles.policy import Policy
from jobs.engine.session import ROLE_CLASSES, run_session

STILL_SECONDS = 120.0
os.environ["TORCH_FR_BUFFER_SIZE"] = "500"  # as whoever starts Ray would set it: workers import this, too


class StillPolicy(Policy):
    """Rank 1 stands still in its third update, while rank 0 waits for it in a collective."""

    _updates = 0

    def update(self, *arguments: Any, **options: Any) -> list[dict[str, float]]:
        """As ever, but for once."""
        self._updates += 1
        if self._updates == 3:
            (_run_dir() / f"third-{self._rank}").touch()
            if self._rank == 1:
                stand_still()
        return super().update(*arguments, **options)


def _run_dir() -> Path:
    """Return the run's directory, which a rank knows by its log alone."""
    return Path(f"/proc/self/fd/{sys.stderr.fileno()}").readlink().parents[1]


def stand_still() -> None:
    """Hold everybody up until that was seen."""
    seen, end = _run_dir() / "log" / "flight" / "after-step-2" / "policy-1.fr.json", time.monotonic() + STILL_SECONDS
    while not seen.exists() and time.monotonic() < end:
        time.sleep(0.05)


def patience(run_dir: Path) -> float:
    """Return 4 s once rank 1 has stood still, and rank 0 had the time to come to its collective, for 8 s; only once."""
    begun = [path.stat().st_mtime for path in run_dir.glob("third-*")]
    is_told = (run_dir / "log" / "flight").exists()  # a slow step after it is no second hang
    return 4.0 if len(begun) == 2 and time.time() - max(begun) > 8 and not is_told else math.inf


if __name__ == "__main__":
    run_dir = Path(sys.argv[1]).resolve()
    hang_watch.LOOK_SECONDS = 0.2
    hang_watch.patience = lambda _: patience(run_dir)
    classes = {**ROLE_CLASSES, "policy": "tests.jobs.engine.impatient_run:StillPolicy"}
    sys.exit(run_session(run_dir, device="cpu", classes=classes))
