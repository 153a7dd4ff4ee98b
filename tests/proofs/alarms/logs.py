"""Real logs of runs and engines that work, up to where something fails in them, on which no symptom may be named.

The files are in tests/data/trainer_logs; its README says whose they are.
"""

import gzip
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DATA = Path(__file__).parents[2] / "data" / "trainer_logs"
WORKS: Mapping[str, tuple[str, int]] = {
    "verl_grpo_gsm8k_trtllm_98steps.log.gz": ("98 steps of a reward that rises", 0),
    "verl_grpo_gsm8k_trtllm_15steps.log.gz": ("15 steps of a reward that rises", 0),
    "verl_grpo_game2048_10steps.log.gz": ("10 steps, all done; what the reward is says its metrics", 0),
    "searchr1_ppo_cuda_oom.log.gz": ("its set-up and validation, to the line before its first traceback", 12170),
    "vllm_025_int4.log.gz": ("an engine from its start to its end", 0),
    "vllm_lm_eval.log.gz": ("two engines that answer; the score is below what was asked for", 0),
    "vllm_server_short.log.gz": ("an engine from its start to its end", 0),
}
"""By file: why it counts as one that works, and how many of its lines do; 0 are all."""

TRAINERS = ("native", "verl", "openrlhf", "trl")


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthyLog:
    """The lines of a log, judged as that of a run with this spec."""

    name: str
    file: str
    why: str
    spec: Mapping[str, Any]
    lines: Sequence[str]

    @property
    def is_healthy(self) -> bool:
        """True of each: nothing else is kept here."""
        return True

    def as_question(self) -> dict[str, Any]:
        """Return it as `judge` reads it, JSON-able."""
        return {
            "name": self.name,
            "spec": self.spec,
            "planned": 0,
            "series": {},
            "lines": list(self.lines),
            "moments": 1,
        }


def healthy_logs() -> list[HealthyLog]:
    """Return each log as that of a run of every trainer, as a symptom may be one of a trainer alone.

    Checkpoints are off in each, so that no symptom is left out.
    """
    made = []
    for file, (why, count) in WORKS.items():
        lines = gzip.decompress((DATA / file).read_bytes()).decode("utf-8", errors="replace").splitlines()
        for trainer in TRAINERS:
            spec = {"algorithm": "grpo", "trainer": {"name": trainer}, "knobs": {"checkpoint.every_steps": 0}}
            name = f"{file.partition('.')[0]} as {trainer}"
            made.append(HealthyLog(name=name, file=file, why=why, spec=spec, lines=lines[: count or None]))
    return made
