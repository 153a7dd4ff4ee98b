"""The engine with a rank that stands still for a while, and a hang watch that waits for seconds, not minutes."""

import os
import sys
import time
from pathlib import Path
from typing import Any

from jobs.engine import hang_watch
from jobs.engine.policy import Policy
from jobs.engine.session import ROLE_CLASSES, run_session

STILL_SECONDS = 8.0
os.environ["TORCH_FR_BUFFER_SIZE"] = "500"  # as whoever starts Ray would set it: workers import this, too


class StillPolicy(Policy):
    """Rank 1 stands still in its third update, while rank 0 waits for it in a collective."""

    _updates = 0

    def update(self, *arguments: Any, **options: Any) -> list[dict[str, float]]:
        """As ever, but for once."""
        self._updates += 1
        if self._rank == 1 and self._updates == 3:
            stand_still()
        return super().update(*arguments, **options)


def stand_still() -> None:
    """Hold everybody up."""
    time.sleep(STILL_SECONDS)


if __name__ == "__main__":
    hang_watch.LEAST_SECONDS, hang_watch.STEPS, hang_watch.LOOK_SECONDS = 4.0, 0.0, 0.2
    classes = {**ROLE_CLASSES, "policy": "tests.jobs.engine.impatient_run:StillPolicy"}
    sys.exit(run_session(Path(sys.argv[1]).resolve(), device="cpu", classes=classes))
