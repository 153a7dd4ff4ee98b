"""A run that ends in a given way: `python -m tests.proofs.ending_run WAY RUN_DIR`, once RUN_DIR/end is there.

WAY is one of shipped_run's ENDS: what the run does to itself. Ends that come from outside need nothing of it.
"""

import os
import sys
from pathlib import Path
from typing import Any

import ray

from jobs.catalog.spec.runspec import RunSpec
from jobs.engine.captures import EngineCaptures
from jobs.engine.roles.policy import Policy
from jobs.engine.session import ROLE_CLASSES, run_session

EXIT_CODE = 3


class LeavingPolicy(Policy):
    """Leaves by `exit_actor`, in the middle of an update."""

    def update(self, *arguments: Any, **options: Any) -> Any:
        """Leave, if it is time to."""
        log = Path(f"/proc/self/fd/{sys.stderr.fileno()}").readlink()  # the one thing here that knows the run
        if (log.parents[1] / "end").exists():
            ray.actor.exit_actor()
        return super().update(*arguments, **options)


def main() -> None:
    """Run until the end."""
    way, run_dir = sys.argv[1], Path(sys.argv[2]).resolve()
    classes = dict(ROLE_CLASSES)
    if way == "exit_actor":
        classes["policy"] = f"{__package__}.ending_run:LeavingPolicy"
    if way == "normal end":
        asked = vars(RunSpec)["num_steps"].fget
        over = property(lambda spec: 0 if (run_dir / "end").exists() else asked(spec))  # the step under way is the last
        RunSpec.num_steps = over  # type: ignore[method-assign, assignment]
    before_step = EngineCaptures.before_step

    def before(self: EngineCaptures, step: int) -> None:
        before_step(self, step)
        if not (run_dir / "end").exists():
            return
        if way == "ray_kill":
            ray.kill(self._workers.policies[0].actor)
        elif way == "driver_error":
            raise RuntimeError("planted: the driver fails")
        elif way == "driver_exit":
            os._exit(EXIT_CODE)

    EngineCaptures.before_step = before  # type: ignore[method-assign]
    sys.exit(run_session(run_dir, device="cpu", classes=classes))


if __name__ == "__main__":
    main()
