"""What OpenRLHF writes, as events.

Supervised training, DPO and reward models write TensorBoard files and nothing else that can be read. Reinforcement
learning prints every step from the actor that trains, wherever it sits; its TensorBoard files, of which the held-out
scores are read, are on that actor's node.
"""

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jobs.adapters.logs.gathering import Steps
from jobs.adapters.logs.lines import GrowingFile
from jobs.adapters.logs.planned import Planned
from jobs.adapters.logs.step_lines import openrlhf_step
from jobs.adapters.logs.tensorboard import FOLDER, TensorBoardReader
from jobs.catalog.algorithm import is_in
from jobs.catalog.runspec import RunSpec

TRAINER = "openrlhf"
STDOUT = "log/driver-0.stdout"


class OpenRLHFLogs:
    """The reader of one run directory."""

    def __init__(self, *, spec: RunSpec, run_dir: Path) -> None:
        algorithm = spec.algorithm
        self._is_rl = is_in(algorithm, "rl")
        self._planned = Planned(spec=spec, run_dir=run_dir)
        self._lines = GrowingFile(path=run_dir / STDOUT)
        self._printed = Steps(trainer=TRAINER, algorithm=algorithm)
        self._board = TensorBoardReader(
            folder=run_dir / FOLDER,
            trainer=TRAINER,
            algorithm=algorithm,
            times_steps=not self._is_rl,
            is_wanted=(lambda tag: tag.startswith("eval/")) if self._is_rl else (lambda _: True),
        )

    def poll(self, *, now_ns: int) -> Sequence[Mapping[str, Any]]:
        """Return the events of what was written since the last call."""
        if self._is_rl:
            with contextlib.suppress(OSError):
                for line in self._lines.lines():
                    if (step := openrlhf_step(line.decode("utf-8", "replace"))) is not None:
                        self._printed.add(*step, t=now_ns)
        planned = list(self._planned.events())
        return [*planned, *self._printed.events(), *self._board.poll(now_ns=now_ns)]
