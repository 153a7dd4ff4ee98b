"""verl: one pool for all roles; pools of their own for rollouts in separate mode, a reward model, and a teacher.

Source: verl trainer/ppo (resource pools), utils/config.py and workers/engine_workers.py.
"""

from jobs.catalog.algorithm import is_in
from jobs.catalog.spec.placement import Placement, group_size
from jobs.catalog.spec.runspec import RunSpec

_FOLLOWS_POLICY = ("reference", "critic")


class VerlPlacement:
    """Roles share the policy's devices, and engines take what the pool and their parallel sizes leave memory for."""

    def pools(self, spec: RunSpec) -> dict[str, int]:
        """See Placement."""
        if not is_in(spec.algorithm, "rl"):
            return {"policy": self.group(spec, "policy")}
        values, sizes = spec.values(), self._sizes(spec)
        pools = {"+".join([*sizes, "vllm"]): sizes["policy"]}
        if values.get("async.mode") == "separate":
            pools = {"+".join(sizes): sizes["policy"], "vllm": group_size(values, "rollout")}
        if "reward" in sizes and values.get("placement.reward_own_pool"):
            pools["reward"] = group_size(values, "reward")
        if values.get("algorithm.distillation"):
            pools["teacher"] = group_size(values, "teacher")
        return pools

    def workers(self, spec: RunSpec) -> dict[str, int]:
        """See Placement."""
        if not is_in(spec.algorithm, "rl"):
            return {"policy": self.group(spec, "policy")}
        sizes = self._sizes(spec)
        return {"policy": sizes.pop("policy"), "vllm": self.num_engines(spec), **sizes}

    def group(self, spec: RunSpec, role: str) -> int:
        """See Placement."""
        return group_size(spec.values(), "policy" if role in _FOLLOWS_POLICY else role)

    def num_engines(self, spec: RunSpec) -> int:
        """See Placement: as many as the pool holds."""
        values = spec.values()
        pool = group_size(values, "rollout") or group_size(values, "policy")
        tensor = int(values.get("placement.rollout_tensor_parallel") or 1)
        data = int(values.get("placement.rollout_data_parallel") or 1)
        return max(pool // max(tensor * data, 1), 1)

    def _sizes(self, spec: RunSpec) -> dict[str, int]:
        """Return the devices of every role of reinforcement learning, its engines aside."""
        values = spec.values()
        policy = group_size(values, "policy")
        sizes = {"policy": policy}
        if spec.needs("reference"):
            sizes["reference"] = policy
        if spec.needs("critic"):
            sizes["critic"] = policy
        if values.get("reward.model_path"):
            sizes["reward"] = group_size(values, "reward") or policy
        return sizes


PLUGIN: Placement = VerlPlacement()
