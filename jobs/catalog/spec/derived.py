"""Quantities that rules use and that no knob holds: one small function each, by dotted name.

The trainer's own sizes are meant (its `placement.py` and `trainer.toml` have their sources): a rank of data parallelism
is what is left of a group when its devices are divided among sequence, tensor, pipeline and context parallelism.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

from jobs.catalog.algorithm import is_in
from jobs.catalog.knob import is_live, knobs
from jobs.catalog.role import ROLES, roles_of
from jobs.catalog.spec.placement import group_size, placement_of
from jobs.catalog.spec.runspec import RunSpec
from jobs.catalog.trainer import trainers

Derived = Callable[[RunSpec], Any]
_GROUPS = [role.id for role in ROLES.values() if not role.generates]


def _of(role: str) -> Derived:
    return lambda spec: placement_of(spec).group(spec, role)


def _engines(spec: RunSpec) -> int:
    return placement_of(spec).num_engines(spec)


def _pools(spec: RunSpec) -> str:
    return ", ".join(f"{pool} {size}" for pool, size in placement_of(spec).pools(spec).items())


def _counts_prompts(spec: RunSpec) -> bool:
    return trainers()[spec.trainer.name].counts_prompts


def _number(spec: RunSpec, knob_id: str, default: int) -> int:
    """Return a whole number that a knob holds; `default` where it is not set, or means nothing here."""
    values = spec.values()
    value = values.get(knob_id)
    return int(value) if value is not None and is_live(knob_id, values) else default


def _degree(spec: RunSpec) -> int:
    """Return how many devices work on the same samples."""
    sizes = ("sequence", "tensor", "pipeline", "context")
    return math.prod(_number(spec, f"parallel.{size}_parallel_size", 1) for size in sizes)


def _ranks(role: str) -> Derived:
    return lambda spec: _of(role)(spec) // _degree(spec)


def _samples(spec: RunSpec) -> int:
    return _number(spec, "rollout.prompts_per_step", 1) * _number(spec, "rollout.samples_per_prompt", 1)


def _updates(spec: RunSpec) -> int:
    return max(_number(spec, "train.updates_per_rollout", 1), 1)


def _prompts_per_update(spec: RunSpec) -> int:
    return max(_number(spec, "rollout.prompts_per_step", 1) // _updates(spec), 1)


def _samples_per_update(spec: RunSpec) -> int:
    """Return the samples of one optimizer step, over all ranks."""
    if not is_in(spec.algorithm, "rl"):
        return _number(spec, "train.batch_size", 1)
    if _counts_prompts(spec):
        return _prompts_per_update(spec) * _number(spec, "rollout.samples_per_prompt", 1)
    return max(_samples(spec) // _updates(spec), 1)


def _has_old_pass(spec: RunSpec) -> bool:
    """Return whether the built-in trainer passes over a rollout with the policy before it updates it.

    With one optimizer step per rollout the policy that learns is the one that sampled: its own forward pass has the old
    log-probabilities. A KL in the reward needs them before there are advantages.
    """
    has_kl_in_reward = spec.needs("reference") and not spec.knob("algorithm.kl_in_loss")
    return _updates(spec) > 1 or has_kl_in_reward


def _used_zero_stage(spec: RunSpec) -> int:
    """Return the ZeRO stage that the built-in trainer runs: 2 at least in bfloat16, and with the optimizer on the CPU.

    DeepSpeed adds up bfloat16 gradients in float32 from stage 2 on only, and offloads what is divided.
    """
    return _least_stage(spec, _number(spec, "memory.zero_stage", 2))


def _least_stage(spec: RunSpec, stage: int) -> int:
    needs_two = spec.knob("memory.precision") == "bfloat16" or bool(spec.knob("memory.adam_offload"))
    return max(stage, 2) if needs_two else stage


def _used_critic_zero_stage(spec: RunSpec) -> int:
    """Return the ZeRO stage of the built-in trainer's critic: that of the policy where it has none of its own."""
    own = spec.knob("memory.critic_zero_stage")
    return _used_zero_stage(spec) if own == "policy" else _least_stage(spec, int(own))


def _offloads_params(spec: RunSpec) -> bool:
    """Return whether the built-in trainer keeps its part of the weights in host memory: in ZeRO-3, with the optimizer
    there, too.
    """
    is_asked = bool(spec.knob("memory.zero_param_offload")) and bool(spec.knob("memory.adam_offload"))
    return is_asked and _used_zero_stage(spec) == 3


def _master_precision(spec: RunSpec) -> str:
    """Return the number type in which the built-in trainer's optimizer works: that of the weights at most."""
    is_half = spec.knob("memory.precision") == "bfloat16"
    return str(spec.knob("memory.master_precision")) if is_half else "float32"


def _micro(spec: RunSpec) -> int:
    return max(_number(spec, "train.micro_batch_size", 1), 1)


def _trained(spec: RunSpec) -> int:
    """Return the least common multiple of the data-parallel ranks of the roles that are trained."""
    return math.lcm(*(max(_ranks(role.id)(spec), 1) for role in roles_of(spec) if role.is_trained))


def _fitting_micro(spec: RunSpec) -> int | None:
    """Return the largest micro-batch, not above the chosen one, with which an update is whole on every rank."""
    samples, ranks = _samples_per_update(spec), _trained(spec)
    if samples % ranks:
        return None
    return max(size for size in range(1, _micro(spec) + 1) if samples // ranks % size == 0)


def _unit(spec: RunSpec) -> int:
    """Return what the samples of a rollout have to be a multiple of."""
    micro = 1 if spec.knobs.get("train.dynamic_batch") and spec.knob("train.dynamic_batch") else _micro(spec)
    return micro * _trained(spec) * _updates(spec)


def _fitting_prompts(spec: RunSpec) -> int:
    """Return the least number of prompts, not below the chosen one, whose samples make whole updates everywhere."""
    per_prompt = _number(spec, "rollout.samples_per_prompt", 1)
    step = _unit(spec) // math.gcd(_unit(spec), per_prompt)
    if _counts_prompts(spec):
        step = math.lcm(step, _updates(spec))
    return -(-_number(spec, "rollout.prompts_per_step", 1) // step) * step


def _fitting_updates(spec: RunSpec) -> int:
    """Return the largest number of updates, not above the chosen one, that divides a rollout."""
    whole = _number(spec, "rollout.prompts_per_step", 1) if _counts_prompts(spec) else _samples(spec)
    return max(count for count in range(1, min(_updates(spec), whole) + 1) if whole % count == 0)


def _fitting_batch(spec: RunSpec) -> int:
    """Return the least batch of supervised training, not below the chosen one, that every rank gets whole."""
    unit = max(_ranks("policy")(spec), 1)
    if trainers()[spec.trainer.name].takes_whole_micro_batches:
        unit *= _micro(spec)
    return -(-_number(spec, "train.batch_size", 1) // unit) * unit


def _score_micro(spec: RunSpec) -> int:
    """Return the samples of a scoring batch; with batches by tokens the trainer's own default stays and is counted."""
    knob, trainer = knobs()["train.score_micro_batch_size"], spec.trainer
    flag = knob.flag(trainer=trainer.name, version=trainer.version, algorithm=spec.algorithm)
    own = flag.default if flag is not None and isinstance(flag.default, int) else 1
    return max(_number(spec, knob.id, own), 1)


def _scorers(spec: RunSpec) -> dict[str, int]:
    """Return the data-parallel ranks of each group that scores rollouts."""
    roles = [role.id for role in roles_of(spec) if not role.generates]
    return {role: _ranks(role)(spec) for role in roles if role != "reward" or _has_reward_model(spec)}


def _largest(spec: RunSpec) -> tuple[str, int]:
    scorers = _scorers(spec)
    return max(scorers.items(), key=lambda item: item[1])


def _misfits(spec: RunSpec) -> list[str]:
    """Return the groups, in words, whose devices do not divide among sequence and tensor parallelism."""
    sizes = {role: _of(role)(spec) for role in (_scorers(spec) if is_in(spec.algorithm, "rl") else ["policy"])}
    return [f"{role} {size}" for role, size in sizes.items() if size % _degree(spec)]


def _agent(spec: RunSpec) -> bool:
    return bool(spec.values().get("agent.function_path"))


def _has_reward_model(spec: RunSpec) -> bool:
    return spec.needs("reward") and not _agent(spec)


def _pool(role: str) -> Derived:
    return lambda spec: group_size(spec.values(), role)


def _adaptive_factor(spec: RunSpec) -> float:
    """Return what an adaptive KL controller multiplies its coefficient by in a step while KL is far below target.

    1 + clip(kl / target - 1, +-0.2) x samples / horizon, of which the first clips at -0.2 (arXiv 1909.08593).
    """
    horizon = _number(spec, "algorithm.kl_horizon", 10000)
    return max(1 - 0.2 * _samples(spec) / horizon, 0.0)


def _longest(spec: RunSpec) -> int:
    if not is_in(spec.algorithm, "rl"):
        return _number(spec, "train.max_sequence_tokens", 0)
    return _number(spec, "rollout.max_prompt_tokens", 0) + _number(spec, "rollout.max_new_tokens", 0)


def _is_held_out(spec: RunSpec) -> bool:
    """Return True if there is data to evaluate on."""
    if spec.data.kind in ("bundled", "upload"):
        return spec.data.eval_share > 0 or bool(spec.data.eval_split)
    return bool(spec.data.eval_id or spec.data.eval_split)


def _cap_problem(spec: RunSpec) -> str:
    """Return why the trainer would not read the cap of the importance weights; "" if it would."""
    text = str(spec.values().get("algorithm.correction_cap") or "")
    bounds = _bounds(text)
    if bounds is None:
        return f"{text!r} is neither a number nor two divided by _"
    if min(bounds) <= 0:
        return f"{min(bounds):g} is not above 0"
    return "the lower bound is above the upper one" if bounds[0] > bounds[-1] else ""


def _bounds(text: str) -> tuple[float, ...] | None:
    try:
        return tuple(float(part) for part in text.strip().split("_", 1))
    except ValueError:
        return None


REJECTIONS = (
    *(f"token_k{k}" for k in (1, 2, 3)),
    *(f"seq_{what}_k{k}" for what in ("sum", "mean") for k in (1, 2, 3)),
    *(f"seq_max_k{k}" for k in (2, 3)),
)


def _listed(spec: RunSpec, knob_id: str) -> list[str]:
    return [part.strip() for part in str(spec.values().get(knob_id) or "").split(",") if part.strip()]


def _rejection_problem(spec: RunSpec) -> str:
    """Return why the trainer would not read the criteria of rejection and their thresholds; "" if it would."""
    criteria = list(dict.fromkeys(_listed(spec, "algorithm.rejection")))
    thresholds = _listed(spec, "algorithm.rejection_threshold")
    if strange := [name for name in criteria if name not in REJECTIONS]:
        return f"there is no criterion {strange[0]!r}; known are {', '.join(REJECTIONS)}"
    if not thresholds:
        return "there is no threshold"
    if len(thresholds) not in (1, len(criteria)):
        return f"{len(thresholds)} thresholds are given for {len(criteria)} criteria"
    for name, text in zip(
        criteria, thresholds if len(thresholds) == len(criteria) else thresholds * len(criteria), strict=True
    ):
        bounds = _bounds(text)
        if bounds is None:
            return f"{text!r} is neither a number nor two divided by _"
        if min(bounds) <= 0:
            return f"{min(bounds):g} is not above 0"
        if len(bounds) == 2 and bounds[0] > bounds[1]:
            return f"the lower bound of {text!r} is above the upper one"
        if len(bounds) == 1 and name.endswith("k1") and bounds[0] < 1:  # its lower bound is 1 / upper then
            return f"the upper bound {text!r} is below the lower one, {1 / bounds[0]:g}"
        if len(bounds) == 2 and not name.endswith("k1"):
            return f"{name} takes one upper bound, not {text!r}"
    return ""


DERIVED: Mapping[str, Derived] = {
    "gpus.total": lambda spec: spec.num_workers,  # devices of all pools
    **{f"gpus.{role}": _of(role) for role in _GROUPS},
    "gpus.rollout": lambda spec: _engines(spec) * max(_number(spec, "placement.rollout_tensor_parallel", 1), 1),
    "gpus.rollout_pool": _pool("rollout"),  # a pool of its own for rollout engines
    "gpus.teacher_pool": _pool("teacher"),
    "gpus.pools": _pools,  # in words
    "gpus.misfits": _misfits,
    **{f"ranks.{role}": _ranks(role) for role in _GROUPS},  # of data parallelism
    "ranks.degree": _degree,
    "ranks.scoring_group": lambda spec: _largest(spec)[0],  # the group with the most ranks, and how many it has
    "ranks.scoring": lambda spec: _largest(spec)[1],
    "batch.samples": _samples,  # of a rollout
    "batch.samples_per_update": _samples_per_update,
    "batch.prompts_per_update": _prompts_per_update,
    "batch.score_micro": _score_micro,
    "batch.scoring": lambda spec: -(-_samples(spec) // _score_micro(spec)),  # scoring batches of a rollout
    "batch.fitting_micro": _fitting_micro,
    "batch.fitting_prompts": _fitting_prompts,
    "batch.fitting_updates": _fitting_updates,
    "batch.fitting_size": _fitting_batch,
    "length.longest": _longest,  # tokens of prompt and answer, or of a sample
    "kl.factor": _adaptive_factor,
    "kl.factor_100": lambda spec: _adaptive_factor(spec) ** 100,
    "correction.cap_problem": _cap_problem,
    "correction.rejection_problem": _rejection_problem,
    "rollout.engines": _engines,
    "memory.used_zero_stage": _used_zero_stage,
    "memory.used_critic_zero_stage": _used_critic_zero_stage,
    "memory.offloads_params": _offloads_params,
    "memory.used_master_precision": _master_precision,
    "batch.has_old_pass": _has_old_pass,
    "reward.kinds": lambda spec: [part.kind for part in spec.reward.parts],
    "has.critic": lambda spec: spec.needs("critic"),
    "has.reference": lambda spec: spec.needs("reference"),
    "has.agent": _agent,
    "has.reward_model": _has_reward_model,
    "has.held_out": _is_held_out,
    "is.rl": lambda spec: is_in(spec.algorithm, "rl"),
    "is.grouped": lambda spec: is_in(spec.algorithm, "grouped"),
}
