"""The engine, which waits before a step until RUN_DIR/go-STEP is there: arguments STEP[,STEP…] RUN_DIR.

So what a test asks of a run comes before that step, however slow the machine is just then.
"""

import sys
import time
from pathlib import Path

from jobs.engine.captures import EngineCaptures
from jobs.engine.session import run_session


def main() -> None:
    """Run, and wait."""
    held, run_dir = {int(step) for step in sys.argv[1].split(",")}, Path(sys.argv[2]).resolve()
    before_step = EngineCaptures.before_step

    def before(self: EngineCaptures, step: int) -> None:
        while step in held and not (run_dir / f"go-{step}").exists():
            time.sleep(0.05)
        before_step(self, step)

    EngineCaptures.before_step = before  # type: ignore[method-assign]
    sys.exit(run_session(run_dir, device="cpu"))


if __name__ == "__main__":
    main()
