"""Which devices a run of another trainer asks of the cluster: its pools, and the ranks of each role.

Sources: OpenRLHF cli/train_ppo_ray.py (a group's size is nodes x GPUs per node; colocated groups share one) and verl
trainer/ppo (one pool for all roles; a rollout pool of its own in separate mode; a reward pool where it has its own; a
teacher's pool where the run distills).
"""

from collections.abc import Mapping
from typing import Any

from jobs.catalog.algorithm import is_in

Values = Mapping[str, Any]


def pools_of(trainer: str, algorithm: str, values: Values) -> dict[str, int]:
    """Return devices by pool; roles that share a pool stand in its name, joined by "+"."""
    if not is_in(algorithm, "rl"):
        return {"policy": group_size(values, "policy")}
    if trainer == "verl":
        return _verl_pools(algorithm, values)
    return _openrlhf_pools(algorithm, values)


def workers_of(trainer: str, algorithm: str, values: Values) -> dict[str, int]:
    """Return role -> ranks; a rollout engine is one rank, however many devices it is spread over."""
    found = {"policy": group_size(values, "policy")}
    if is_in(algorithm, "rl"):
        found["vllm"] = num_engines(trainer, values)
        sizes = _sizes(trainer, algorithm, values)
        found |= {role: sizes[role] for role in ("reference", "critic", "reward") if role in sizes}
    return found


def group_size(values: Values, role: str) -> int:
    """Return nodes times GPUs per node of a role's group."""
    nodes = values.get(f"placement.{role}_nodes", 1)
    return int(nodes or 0) * int(values.get(f"placement.{role}_gpus_per_node", 1) or 0)


def num_engines(trainer: str, values: Values) -> int:
    """Return the number of rollout engines; verl derives it from the pool and the engine's parallel sizes."""
    if trainer != "verl":
        return int(values.get("placement.rollout_engines") or 0)
    pool = group_size(values, "rollout") or group_size(values, "policy")
    return max(pool // max(_engine_devices(values), 1), 1)


def _engine_devices(values: Values) -> int:
    return int(values.get("placement.rollout_tensor_parallel") or 1) * int(
        values.get("placement.rollout_data_parallel") or 1
    )


def _sizes(trainer: str, algorithm: str, values: Values) -> dict[str, int]:
    """Return the ranks of every role that the run has beside its engines."""
    policy = group_size(values, "policy")
    found = {"policy": policy}
    if float(values.get("algorithm.kl_coefficient") or 0) > 0:
        found["reference"] = policy if trainer == "verl" else group_size(values, "reference")
    if is_in(algorithm, "critic"):
        found["critic"] = policy if trainer == "verl" else group_size(values, "critic")
    if values.get("reward.model_path"):
        found["reward"] = group_size(values, "reward") or policy
    return found


def _openrlhf_pools(algorithm: str, values: Values) -> dict[str, int]:
    sizes = _sizes("openrlhf", algorithm, values)
    engines = num_engines("openrlhf", values) * int(values.get("placement.rollout_tensor_parallel") or 1)
    is_async = bool(values.get("async.enable"))
    if values.get("placement.colocate_all"):
        shared = {"+".join(sizes): max(sizes.values())}
        return shared | {"vllm": engines} if is_async else {f"{next(iter(shared))}+vllm": max(*sizes.values(), engines)}
    pools: dict[str, int] = {}
    for first, second, knob in (
        ("policy", "reference", "placement.colocate_policy_reference"),
        ("critic", "reward", "placement.colocate_critic_reward"),
    ):
        here = [role for role in (first, second) if role in sizes]
        if len(here) == 2 and values.get(knob):
            pools["+".join(here)] = max(sizes[role] for role in here)
        else:
            pools |= {role: sizes[role] for role in here}
    return pools | {"vllm": engines}


def _verl_pools(algorithm: str, values: Values) -> dict[str, int]:
    sizes = _sizes("verl", algorithm, values)
    pools = {"+".join([*sizes, "vllm"]): sizes["policy"]}
    if values.get("async.mode") == "separate":
        pools = {"+".join(sizes): sizes["policy"], "vllm": group_size(values, "rollout")}
    if "reward" in sizes and values.get("placement.reward_own_pool"):
        pools["reward"] = group_size(values, "reward")
    if values.get("algorithm.distillation"):
        pools["teacher"] = group_size(values, "teacher")
    return pools
