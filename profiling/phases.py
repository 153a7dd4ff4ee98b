"""The one vocabulary of phases, shared by marks, events, planner, timeline and diagnosis."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """A phase of a step; `key` is what travels, `label` what people read, `token` the CSS colour variable."""

    key: str
    label: str
    token: str


PHASES: tuple[Phase, ...] = (
    Phase(key="load", label="Load", token="phase-load"),
    Phase(key="data_wait", label="Data wait", token="phase-data-wait"),
    Phase(key="rollout", label="Rollout", token="phase-rollout"),
    Phase(key="reward", label="Reward", token="phase-reward"),
    Phase(key="old_logprobs", label="Old log-probs", token="phase-old-logprobs"),
    Phase(key="reference", label="Reference", token="phase-reference"),
    Phase(key="advantages", label="Advantages", token="phase-advantages"),
    Phase(key="update", label="Update", token="phase-update"),
    Phase(key="weight_sync", label="Weight sync", token="phase-weight-sync"),
    Phase(key="checkpoint", label="Checkpoint", token="phase-checkpoint"),
    Phase(key="eval", label="Eval", token="phase-eval"),
    Phase(key="export", label="Export", token="phase-export"),
)
"""In the order in which a step runs them."""

BY_KEY = {phase.key: phase for phase in PHASES}
STEP_PHASES = tuple(phase.key for phase in PHASES if phase.key not in ("load", "checkpoint", "eval", "export"))
"""The phases that one training step consists of."""

WAITING = ("backward", "optimizer")
"""Details in which ranks wait for each other: a rank that is late makes them long on the others."""

BY_FIRST_RANK = ("weight_sync", "checkpoint", "export")
"""Phases in which the first rank works for all of them: that it takes longest there does not mean that it is slow."""

ROLES = ("driver", "policy", "critic", "reference", "teacher", "reward", "vllm", "runner")
"""Who does the work; a lane of the timeline is a role and a rank."""
