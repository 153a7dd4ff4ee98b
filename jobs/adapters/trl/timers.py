"""TRL's times of the parts of a step, from `log/timers.jsonl` (live/on_timers.py), as seconds of a rollout's phases.

    {"name": "RLOOTrainer.transformers.generate", "seconds": 0.8, "step": 4, "eval": false}

Parts are timed when they end, so that an inner one stands before the one around it: whatever stands between two
`_prepare_inputs` but log-probabilities of the loss belongs to the preparation of samples. The update is timed by
`train/step_time`, which holds preparation, forward and backward of one optimizer step, and not the optimizer.

Source: TRL 1.16.0 trainer/grpo_trainer.py and rloo_trainer.py (profiling_decorator, profiling_context, training_step).
"""

import contextlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path

from jobs.adapters.logs.lines import GrowingFile
from jobs.adapters.trl.units import optimizer_steps
from jobs.catalog.spec.runspec import RunSpec

FILE = "log/timers.jsonl"
ON_TIMERS = files("jobs.adapters.trl.live") / "on_timers.py"
STEP_TIME = "train/step_time"
_PREPARE, _LOSS, _LOGPS = "_prepare_inputs", "compute_loss", "_get_per_token_logps_and_entropies"
_PARTS = {
    "vLLM.generate": "profiling/generate",
    "transformers.generate": "profiling/generate",
    "transformers.generate_batch": "profiling/generate",
    "_calculate_rewards": "profiling/rewards",
    "sync_weights": "profiling/sync_weights",
}
_OLD, _REFERENCE, _UPDATE = "profiling/old_logps", "profiling/ref_logps", "profiling/update"


@dataclass(slots=True)
class _Times:
    """What was timed in one rollout: seconds by part, and those of the preparations around them."""

    parts: dict[str, float] = field(default_factory=dict)
    prepared: float = 0.0

    def add(self, part: str, seconds: float) -> None:
        self.parts[part] = self.parts.get(part, 0.0) + seconds


class TrlTimers:
    """The reader of one run directory."""

    def __init__(self, *, spec: RunSpec, run_dir: Path) -> None:
        self._file = GrowingFile(path=run_dir / FILE)
        self._steps_of_one = optimizer_steps(spec.values())
        # The log-probabilities of the reference come last, and only where there is one to stay near to.
        self._has_reference = bool(spec.knob("algorithm.kl_coefficient"))
        self._logps: list[float] = []  # since the last loss or preparation
        self._by_step: dict[int, _Times] = {}
        self._since: dict[int, int] = {}  # step that TRL has told -> the one that it told before

    def seconds(self, step: int, values: Mapping[str, float]) -> dict[str, float]:
        """Return the seconds of a rollout by TRL's part of it, of a step that TRL has told with these values; the mean
        of the rollouts since the step that it told before. {} where nothing was timed, and of what is told of the step
        apart from its training, as an evaluation is after it."""
        self._read()
        if STEP_TIME not in values:
            return {}
        before = self._since.setdefault(step, max((other for other in self._since if other < step), default=0))
        times = [each for number, each in self._by_step.items() if before < number <= step]
        for number in [number for number in self._by_step if number <= before]:
            del self._by_step[number]
        if not times:
            return {}
        parts = {part for each in times for part in each.parts}
        by_part = {part: sum(each.parts.get(part, 0.0) for each in times) / len(times) for part in sorted(parts)}
        whole = values.get(STEP_TIME, math.nan) * self._steps_of_one
        update = whole - sum(each.prepared for each in times) / len(times)
        return by_part | ({_UPDATE: update} if update > 0 else {})

    def _read(self) -> None:
        with contextlib.suppress(OSError):
            for line in self._file.lines():
                try:
                    row = json.loads(line)
                    name, seconds, done = str(row["name"]).partition(".")[2], float(row["seconds"]), int(row["step"])
                    is_evaluation = bool(row["eval"])
                except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
                    continue
                if not is_evaluation and math.isfinite(seconds):
                    self._take(name, seconds, self._by_step.setdefault(done // self._steps_of_one + 1, _Times()))

    def _take(self, name: str, seconds: float, times: _Times) -> None:
        if name == _LOGPS:
            self._logps.append(seconds)
        elif name == _LOSS:
            self._logps.clear()  # of the loss itself
        elif name == _PREPARE:
            times.prepared += seconds
            for place, each in enumerate(self._logps, start=1):
                is_last = place == len(self._logps)
                times.add(_REFERENCE if is_last and self._has_reference else _OLD, each)
            self._logps.clear()
        elif name in _PARTS:
            times.add(_PARTS[name], seconds)
