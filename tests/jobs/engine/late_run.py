"""Run the engine with two faults: policy rank 1 and each batch come late; the argument is the run directory."""

import sys
import time
from pathlib import Path

from jobs.engine.loop import Loop
from jobs.engine.session import ROLE_CLASSES, run_session

if __name__ == "__main__":
    take = Loop._take

    def late(self: Loop, *args: object) -> object:
        time.sleep(0.8)
        return take(self, *args)  # type: ignore[arg-type]

    Loop._take = late  # type: ignore[assignment]
    classes = {**ROLE_CLASSES, "policy": "tests.jobs.engine.faulty:LatePolicy"}
    sys.exit(run_session(Path(sys.argv[1]), device="cpu", classes=classes))
