"""The roles of OpenRLHF's processes. It has no profiler of its own."""

from jobs.adapters.captures import NoCaptures
from jobs.adapters.openrlhf.options import RL, program_of
from jobs.catalog.spec.runspec import RunSpec

_ROLES = {  # by class, of trainer/ray
    "PolicyModelActor": "policy",
    "CriticModelActor": "critic",
    "ReferenceModelActor": "reference",
    "RewardModelActor": "reward",
    "RolloutRayActor": "vllm",
    "LLMRayActor": "vllm",
    "LLMRayActorAsync": "vllm",
}


class OpenRLHFCaptures(NoCaptures):
    """Roles by the class of an actor; in reinforcement learning only engines have processes beside actors."""

    def role_of(self, *, spec: RunSpec, actor: str) -> str:
        """See Captures."""
        if not actor:
            return "vllm" if program_of(spec.algorithm) == RL else "policy"
        return _ROLES.get(actor, "")
