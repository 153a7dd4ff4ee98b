"""TRL: one group of processes on one node; whatever generates or scores shares their devices.

Source: TRL trainer/grpo_trainer.py (the reference and a reward model are held by every process; vLLM is colocated, an
engine over as many processes as its tensor parallelism says, and Transformers generates in every process).
"""

from jobs.catalog.algorithm import is_in
from jobs.catalog.spec.placement import Placement, group_size
from jobs.catalog.spec.runspec import RunSpec


class TrlPlacement:
    """All roles on the devices of the policy."""

    def pools(self, spec: RunSpec) -> dict[str, int]:
        """See Placement."""
        return {"+".join(self.workers(spec)): self.group(spec, "policy")}

    def workers(self, spec: RunSpec) -> dict[str, int]:
        """See Placement."""
        size = self.group(spec, "policy")
        if not is_in(spec.algorithm, "rl"):
            return {"policy": size}
        scoring = {role: size for role in ("reference", "reward") if spec.needs(role)}
        return {"policy": size, "vllm": self.num_engines(spec), **scoring}

    def group(self, spec: RunSpec, role: str) -> int:  # noqa: ARG002
        """See Placement: every process has all of them."""
        return group_size(spec.values(), "policy")

    def num_engines(self, spec: RunSpec) -> int:
        """See Placement."""
        values = spec.values()
        tensor = int(values.get("placement.rollout_tensor_parallel") or 1) if uses_vllm(spec) else 1
        return max(self.group(spec, "policy") // tensor, 1)


def uses_vllm(spec: RunSpec) -> bool:
    """Return True if vLLM generates, and not the trained model itself."""
    return spec.values().get("rollout.backend") == "vllm"


PLUGIN: Placement = TrlPlacement()
