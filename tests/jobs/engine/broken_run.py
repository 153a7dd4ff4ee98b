"""Run the engine with one role that has a fault; arguments: which fault, and the run directory."""

import sys
from pathlib import Path

from jobs.engine.session import ROLE_CLASSES, run_session

FAULTS = {
    "deaf": {"vllm": "tests.jobs.engine.faulty:DeafGenerator"},
    "diverging": {"policy": "tests.jobs.engine.faulty:DivergingPolicy"},
}

if __name__ == "__main__":
    sys.exit(run_session(Path(sys.argv[2]), device="cpu", classes={**ROLE_CLASSES, **FAULTS[sys.argv[1]]}))
