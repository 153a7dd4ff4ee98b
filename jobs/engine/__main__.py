"""`python -m jobs.engine RUN_DIR [--device cpu|cuda]`: train the spec of a run directory on the Ray cluster around it.

Exit code 0: finished. 10: stopped on command, checkpoint saved. 1: failed; the last event of the log is `state: failed`
with a cause.
"""

import argparse
import sys
from pathlib import Path

from jobs.engine.session import run_session


def main() -> None:
    """Read the arguments and run."""
    parser = argparse.ArgumentParser(prog="python -m jobs.engine", description="Train the run in RUN_DIR.")
    parser.add_argument("run_dir", type=Path, help="the run directory; it holds spec.json")
    parser.add_argument(
        "--device", choices=("cpu", "cuda"), default=None, help="default: what the spec says, else what the cluster has"
    )
    arguments = parser.parse_args()
    sys.exit(run_session(arguments.run_dir.resolve(), device=arguments.device))


if __name__ == "__main__":
    main()
