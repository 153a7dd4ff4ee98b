"""TRL's own times of the parts of a step are written to log/timers.jsonl of the run directory, too.

TRL measures them in reinforcement learning and sends them to W&B, MLflow and trackio alone. Each line has the name that
TRL gives the part, its seconds, the optimizer steps done before, and whether it was a part of an evaluation.
"""

import contextlib
import json
from pathlib import Path
from types import ModuleType
from typing import Any

MODULE = "trl.extras.profiling"
FILE = Path(__file__).resolve().parents[2] / "log" / "timers.jsonl"


def change(module: ModuleType) -> None:
    """Have each time written before it is sent where TRL sends it."""
    FILE.parent.mkdir(exist_ok=True)
    made, send = module.profiling_context, module.ProfilingContext._log_metrics

    def profiling_context(trainer: Any, name: str) -> Any:
        context = made(trainer, name)
        context.is_evaluation = not trainer.model.training
        return context

    def _log_metrics(self: Any, duration: float) -> None:
        if self.is_main_process and self.step is not None:
            line = {"name": self.name, "seconds": duration, "step": self.step, "eval": self.is_evaluation}
            with contextlib.suppress(OSError), FILE.open("a", encoding="utf-8") as file:  # a full disk ends no run
                file.write(json.dumps(line) + "\n")
        send(self, duration)

    module.profiling_context = profiling_context  # type: ignore[attr-defined]  # it is the module that we change
    module.ProfilingContext._log_metrics = _log_metrics
