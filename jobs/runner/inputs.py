"""Have the engine lay out a run's model and data for a trainer that knows nothing of Pitwall."""

import json
import subprocess
import sys
from pathlib import Path

MATERIALIZE_SECONDS = 600.0  # of a large upload
_REFUSED = 2  # of jobs.engine.data.materialize: the spec's data are not what the trainer needs


class InputsFailed(Exception):
    """The inputs are not there; `side` is who has to do something about it."""

    def __init__(self, side: str, text: str) -> None:
        super().__init__(text)
        self.side = side


def materialize_inputs(run_dir: Path) -> None:
    """Write the inputs that the console holds below the run directory, in a process of its own.

    Raises: InputsFailed.
    """
    command = [sys.executable, "-m", "jobs.engine.data.materialize", str(run_dir)]
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=MATERIALIZE_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise InputsFailed("cluster", f"the data were not written within {MATERIALIZE_SECONDS:.0f} s") from error
    if done.returncode == _REFUSED:
        problem = json.loads(done.stdout.strip().splitlines()[-1])
        raise InputsFailed("user", f"{problem['field']}: {problem['message']}")
    if done.returncode:
        why = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        side = "cluster" if "No space left" in why else "pitwall"
        raise InputsFailed(side, f"model and data could not be written for the trainer: {why[:300]}")
