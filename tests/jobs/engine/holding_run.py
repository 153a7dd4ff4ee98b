"""The engine, which waits before a step until RUN_DIR/go is there: arguments STEP RUN_DIR.

So what a test asks of a run comes before that step, however slow the machine is just then.
"""

import sys
import time
from pathlib import Path

from jobs.engine.captures import EngineCaptures
from jobs.engine.session import run_session


def main() -> None:
    """Run, and wait."""
    held, run_dir = int(sys.argv[1]), Path(sys.argv[2]).resolve()
    before_step = EngineCaptures.before_step

    def before(self: EngineCaptures, step: int) -> None:
        while step == held and not (run_dir / "go").exists():
            time.sleep(0.05)
        before_step(self, step)

    EngineCaptures.before_step = before  # type: ignore[method-assign]
    sys.exit(run_session(run_dir, device="cpu"))


if __name__ == "__main__":
    main()
