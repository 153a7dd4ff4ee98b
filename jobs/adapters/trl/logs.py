"""What TRL writes, as events: Transformers' TensorBoard files, flushed with every report, its progress bar, and its
files of completions, and its timers.

One process alone writes them, on the node of the run directory. Steps are optimizer steps there; here a step is a
rollout with all of its updates, of which the last one's values are reported.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from jobs.adapters.logs.step_count import BAR, StepCount
from jobs.adapters.logs.tensorboard import FOLDER, TensorBoardReader, nothing_further
from jobs.adapters.trl.completions import TrlCompletions
from jobs.adapters.trl.options import TRAINER
from jobs.adapters.trl.timers import TrlTimers
from jobs.adapters.trl.units import optimizer_steps
from jobs.catalog.algorithm import is_in
from jobs.catalog.spec.runspec import RunSpec
from profiling.events import Event

_STEPS = re.compile(r"(?:^|[\r\n])\s*" + BAR.removeprefix(r":\s+"))
# Sums over the run, and rates of an evaluation.
_SUMMARY = re.compile(r"train/(train_.*|total_flos)|eval/.*_per_second")


class TrlLogs:
    """The reader of one run directory."""

    def __init__(self, *, spec: RunSpec, run_dir: Path) -> None:
        self._is_rl = is_in(spec.algorithm, "rl")
        self._completions = TrlCompletions(spec=spec, run_dir=run_dir) if self._is_rl else None
        self._planned = StepCount(spec=spec, run_dir=run_dir, count=planned_steps)
        self._board = TensorBoardReader(
            folder=run_dir / FOLDER,
            trainer=TRAINER,
            algorithm=spec.algorithm,
            times_steps=True,
            has_timers=self._is_rl,
            further=TrlTimers(spec=spec, run_dir=run_dir).seconds if self._is_rl else nothing_further,
            steps_of_one=optimizer_steps(spec.values()),
            is_wanted=self._is_wanted,
        )

    def poll(self, *, now_ns: int) -> Sequence[Event]:
        """Return the events of what was written since the last call."""
        samples = self._completions.events(now_ns=now_ns) if self._completions else ()
        return [*self._planned.events(), *samples, *self._board.poll(now_ns=now_ns)]

    def _is_wanted(self, tag: str) -> bool:
        """Leave out sums over the run, and a held-out loss that is no cross-entropy."""
        return not _SUMMARY.fullmatch(tag) and not (self._is_rl and tag == "eval/loss")


def planned_steps(text: str, spec: RunSpec, origin: int = 0) -> int | None:  # noqa: ARG001 (its bar has all steps)
    """Return how many steps the progress bar in `text` promises; None if it does not say (yet).

    Tokenizing train dataset: 100%|##########| 90/90 [00:00<00:00, ...]     has a name: it prepares something
      0%|          | 0/12 [00:00<?, ?it/s]                                  optimizer steps
    """
    match = _STEPS.search(text)
    return None if match is None else int(match["total"]) // optimizer_steps(spec.values())
