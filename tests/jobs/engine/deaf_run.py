"""Run the engine with a rollout engine that throws synced weights away; the argument is the run directory."""

import sys
from pathlib import Path

from jobs.engine.session import ROLE_CLASSES, run_session

if __name__ == "__main__":
    classes = {**ROLE_CLASSES, "vllm": "tests.jobs.engine.faulty:DeafGenerator"}
    sys.exit(run_session(Path(sys.argv[1]), device="cpu", classes=classes))
