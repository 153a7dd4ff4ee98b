"""Every worker of the built-in trainer has a device of its own (jobs/engine/workers)."""

from jobs.catalog.algorithm import is_in
from jobs.catalog.placement import Placement
from jobs.catalog.runspec import RunSpec


class NativePlacement:
    """Policy ranks, engines, and one reference where the algorithm compares with one: the section `hardware`."""

    def pools(self, spec: RunSpec) -> dict[str, int]:
        """See Placement: no two roles share one."""
        each = {"vllm": spec.hardware.tensor_parallel_size}
        return {role: ranks * each.get(role, 1) for role, ranks in self.workers(spec).items()}

    def workers(self, spec: RunSpec) -> dict[str, int]:
        """See Placement."""
        found = {"policy": spec.hardware.policy_ranks}
        if is_in(spec.algorithm, "rl"):
            found["vllm"] = spec.hardware.rollout_engines
        return found | ({"reference": 1} if spec.needs_reference else {})

    def group(self, spec: RunSpec, role: str) -> int:  # noqa: ARG002
        """See Placement: rules compare with the ranks of the policy."""
        return spec.hardware.policy_ranks

    def num_engines(self, spec: RunSpec) -> int:
        """See Placement."""
        return spec.hardware.rollout_engines


PLUGIN: Placement = NativePlacement()
