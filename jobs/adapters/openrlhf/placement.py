"""OpenRLHF: a group of devices for each role, groups that share theirs, and rollout engines beside or among them.

Source: OpenRLHF cli/train_ppo_ray.py (a group's size is nodes x GPUs per node; colocated groups share one).
"""

from jobs.catalog.algorithm import is_in
from jobs.catalog.spec.placement import Placement, group_size
from jobs.catalog.spec.runspec import RunSpec

_SHARED = (
    ("policy", "reference", "placement.colocate_policy_reference"),
    ("critic", "reward", "placement.colocate_critic_reward"),
)


class OpenRLHFPlacement:
    """Groups as the knobs of the group placement have them."""

    def pools(self, spec: RunSpec) -> dict[str, int]:
        """See Placement."""
        if not is_in(spec.algorithm, "rl"):
            return {"policy": self.group(spec, "policy")}
        values, sizes = spec.values(), self._sizes(spec)
        engines = self.num_engines(spec) * int(values.get("placement.rollout_tensor_parallel") or 1)
        if values.get("placement.colocate_all"):
            trained = "+".join(sizes)
            if values.get("async.enable"):
                return {trained: max(sizes.values()), "vllm": engines}
            return {f"{trained}+vllm": max(*sizes.values(), engines)}
        pools: dict[str, int] = {}
        for first, second, knob in _SHARED:
            here = [role for role in (first, second) if role in sizes]
            if len(here) == 2 and values.get(knob):
                pools["+".join(here)] = max(sizes[role] for role in here)
            else:
                pools |= {role: sizes[role] for role in here}
        return pools | {"vllm": engines}

    def workers(self, spec: RunSpec) -> dict[str, int]:
        """See Placement."""
        if not is_in(spec.algorithm, "rl"):
            return {"policy": self.group(spec, "policy")}
        sizes = self._sizes(spec)
        return {"policy": sizes.pop("policy"), "vllm": self.num_engines(spec), **sizes}

    def group(self, spec: RunSpec, role: str) -> int:
        """See Placement."""
        return group_size(spec.values(), role)

    def num_engines(self, spec: RunSpec) -> int:
        """See Placement."""
        return int(spec.values().get("placement.rollout_engines") or 0)

    def _sizes(self, spec: RunSpec) -> dict[str, int]:
        """Return the devices of every role of reinforcement learning, its engines aside."""
        values = spec.values()
        sizes = {"policy": group_size(values, "policy")}
        if spec.needs("reference"):
            sizes["reference"] = group_size(values, "reference")
        if spec.needs("critic"):
            sizes["critic"] = group_size(values, "critic")
        if values.get("reward.model_path"):
            sizes["reward"] = group_size(values, "reward") or sizes["policy"]
        return sizes


PLUGIN: Placement = OpenRLHFPlacement()
