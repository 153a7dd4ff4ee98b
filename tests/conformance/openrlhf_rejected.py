"""Specs that OpenRLHF itself refuses: a valid one each, broken in one respect, with the check that says no.

`rejected()` is the oracle for our own rules: whoever checks such a spec has to refuse it and to name one of `fields`.
`test_openrlhf.py` holds them against OpenRLHF's code. What cannot be said here at all is not among them: a knob that
means nothing beside the others is not written (partial rollouts without asynchronous training, turns without a chat
template), and there is no held-out data beside a reward model.

| rule | who says no |
|---|---|
| O1 O2 O3 | train() of train_ppo_ray: groups that share GPUs have the same size |
| O7 O8 O14 O17 O21 O22 O23 O11 | the checks behind the parser of train_ppo_ray, O11 of the other programs |
| O25 | DeepspeedStrategy: tensor parallelism wants bf16 |
| O26 O27 | PolicyLoss: the dual clip, and what corrections go together |
| O29 | the penalties of length |
| O30 | DeepSpeed: a batch is whole micro-batches on every rank |
| O31 | RayActorGroup: at least one scoring batch per rank |
| choice type | argparse |
"""

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from jobs.catalog.algorithm import expand, is_in
from jobs.catalog.spec.runspec import KnobValue, RewardSource, RunSpec
from jobs.catalog.trainer import as_version
from jobs.catalog.value import Value
from tests.conformance.openrlhf_specs import VERSIONS, algorithms_at, drawn
from tests.conformance.rejected import Rejection

Change = Callable[[RunSpec], Mapping[str, Value]]
MODEL = RewardSource(kind="model", location="OpenRLHF/Llama-3-8b-rm-700k")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Break:
    rule: str
    algorithms: str | tuple[str, ...]
    change: Change
    says: str
    fields: tuple[str, ...]
    since: str = ""
    before: str = ""
    reward: RewardSource | None = None

    def holds(self, version: str, algorithm: str) -> bool:
        now = as_version(version)
        if now < as_version(self.since) or (self.before and now >= as_version(self.before)):
            return False
        return algorithm in (self.algorithms if isinstance(self.algorithms, tuple) else expand([self.algorithms]))


def _alone(**changes: Value) -> dict[str, Value]:
    """Return a small placement of which every role is a group of its own, with changes by the knob's last part."""
    found: dict[str, Value] = {
        "placement.colocate_all": False,
        "placement.colocate_policy_reference": False,
        "placement.colocate_critic_reward": False,
        "async.enable": False,
        "rollout.sleep": False,
        "parallel.tensor_parallel_size": 1,
        "parallel.sequence_parallel_size": 1,
        "train.dynamic_batch": False,
        "train.micro_batch_size": 1,
        "train.score_micro_batch_size": 1,
        "train.updates_per_rollout": 1,
        "rollout.prompts_per_step": 16,
        "rollout.samples_per_prompt": 4,
        "rollout.prompts_per_generation": None,
        "placement.rollout_engines": 4,
        "placement.rollout_tensor_parallel": 1,
        "algorithm.kl_coefficient": 0.01,
    }
    for role in ("policy", "reference", "critic", "reward"):
        found |= {f"placement.{role}_nodes": 1, f"placement.{role}_gpus_per_node": 4}
    return found | changes


def _with(**changes: Value) -> Change:
    """Return a change to that placement; a double underscore stands for the dot of a knob's id."""
    return lambda spec: _alone(**{name.replace("__", "."): value for name, value in changes.items()})


def _supervised(**changes: Value) -> Change:
    """Return a change of a run that has no roles."""
    base: dict[str, Value] = {
        "placement.policy_nodes": 1,
        "placement.policy_gpus_per_node": 4,
        "parallel.tensor_parallel_size": 1,
        "parallel.sequence_parallel_size": 1,
        "train.micro_batch_size": 2,
        "train.batch_size": 32,
        "memory.precision": "bfloat16",
    }
    return lambda spec: base | {name.replace("__", "."): value for name, value in changes.items()}


_GROUPS = ("placement.colocate_all", "placement.policy_nodes", "placement.policy_gpus_per_node")
_REFERENCE = ("placement.reference_nodes", "placement.reference_gpus_per_node", "placement.colocate_policy_reference")
_REWARD = ("placement.reward_nodes", "placement.reward_gpus_per_node", "placement.colocate_critic_reward")
_CRITIC = ("placement.critic_nodes", "placement.critic_gpus_per_node")
_ENGINES = ("placement.rollout_engines", "placement.rollout_tensor_parallel")
_BATCH = ("train.batch_size", "train.micro_batch_size", "train.updates_per_rollout", "rollout.prompts_per_step")
_SCORED = ("train.score_micro_batch_size", "rollout.prompts_per_step", "rollout.samples_per_prompt")
_SAMPLING = ("algorithm.dynamic_sampling", "algorithm.dynamic_sampling_low", "algorithm.dynamic_sampling_high")
_SUPERVISED = ("sft", "dpo", "rm")
_NEEDED = ("grpo", "dapo", "gspo", "rloo", "reinforce_pp_baseline")

BREAKS = (
    _Break(
        rule="O1",
        algorithms="rl",
        change=_with(placement__colocate_policy_reference=True, placement__reference_gpus_per_node=2),
        says="must be the same when colocate actor and ref model",
        fields=(*_GROUPS, *_REFERENCE),
    ),
    _Break(
        rule="O1",
        algorithms="rl",
        change=_with(placement__colocate_all=True, placement__reference_nodes=2),
        says="must be the same when colocate actor and ref model",
        fields=(*_GROUPS, *_REFERENCE),
    ),
    _Break(
        rule="O2",
        algorithms="rl",
        change=_with(placement__colocate_all=True, placement__rollout_engines=3, placement__rollout_tensor_parallel=2),
        says="must be equal to vllm_num_engines * vllm_tensor_parallel_size, got 4 and 6",
        fields=(*_GROUPS, *_ENGINES),
    ),
    _Break(
        rule="O3",
        algorithms=("ppo",),
        change=_with(
            placement__colocate_critic_reward=True,
            placement__reward_gpus_per_node=2,
            algorithm__dynamic_sampling=False,
        ),
        says="must be the same when colocate critic and reward model",
        fields=(*_CRITIC, *_REWARD),
        reward=MODEL,
    ),
    _Break(
        rule="O3",
        algorithms=("ppo",),
        change=_with(placement__colocate_critic_reward=True, placement__critic_nodes=2),
        says="must be the same when colocate critic and reward model",
        fields=(*_CRITIC, *_REWARD),
    ),
    _Break(
        rule="O7",
        algorithms=_NEEDED,
        change=_with(rollout__samples_per_prompt=1, algorithm__dynamic_sampling=False),
        says="requires n_samples_per_prompt > 1",
        fields=("rollout.samples_per_prompt",),
    ),
    _Break(
        rule="O7",
        algorithms=("dr_grpo",),
        since="0.11.2",
        change=_with(rollout__samples_per_prompt=1, algorithm__dynamic_sampling=False),
        says="requires n_samples_per_prompt > 1",
        fields=("rollout.samples_per_prompt",),
    ),
    _Break(
        rule="O8",
        algorithms=("ppo",),
        since="0.10.1",
        change=_with(data__max_images_per_prompt=2),
        says="VLM training does not support critic model",
        fields=("data.max_images_per_prompt", "algorithm"),
    ),
    _Break(
        rule="O8",
        algorithms="grouped",
        since="0.10.1",
        change=_with(data__max_images_per_prompt=2, train__packing=True),
        says="VLM training does not support --packing_samples",
        fields=("data.max_images_per_prompt", "train.packing"),
    ),
    _Break(
        rule="O11",
        algorithms=_SUPERVISED,
        change=_supervised(parallel__sequence_parallel_size=2, train__packing=False),
        says="packing_samples must be enabled when using ring attention",
        fields=("parallel.sequence_parallel_size", "train.packing"),
    ),
    _Break(
        rule="O14",
        algorithms="rl",
        change=_with(train__packing=True, data__max_images_per_prompt=0, placement__rollout_engines=0),
        says="Only support `--packing_samples` with vLLM",
        fields=("placement.rollout_engines",),
    ),
    _Break(
        rule="O17",
        algorithms="rl",
        change=_with(placement__colocate_all=True, async__enable=True, rollout__sleep=True),
        says="Async RLHF is not supported with",
        fields=("rollout.sleep", "async.enable"),
    ),
    _Break(
        rule="O21",
        algorithms="rl",
        since="0.10.1",
        change=_with(rollout__prompts_per_generation=32),
        says="over-sampling needs async queue",
        fields=("rollout.prompts_per_generation", "async.enable", "rollout.prompts_per_step"),
    ),
    _Break(
        rule="O22",
        algorithms="rl",
        change=_with(
            algorithm__dynamic_sampling=True, algorithm__dynamic_sampling_low=0.5, algorithm__dynamic_sampling_high=0.5
        ),
        says="reward_clip_range[0] must be less than reward_clip_range[1]",
        fields=_SAMPLING,
    ),
    _Break(
        rule="O22",
        algorithms="rl",
        change=_with(
            algorithm__dynamic_sampling=True, algorithm__dynamic_sampling_low=0.0, algorithm__dynamic_sampling_high=1.0
        ),
        says="must be specified when using dynamic filtering",
        fields=(*_SAMPLING, "reward.kind"),
        reward=MODEL,
    ),
    _Break(
        rule="O22",
        algorithms=("ppo", "reinforce_pp"),
        change=_with(
            algorithm__dynamic_sampling=True,
            algorithm__dynamic_sampling_low=0.0,
            algorithm__dynamic_sampling_high=1.0,
            rollout__samples_per_prompt=1,
        ),
        says="n_samples_per_prompt must be greater than 1 when using dynamic filtering",
        fields=(*_SAMPLING, "rollout.samples_per_prompt"),
    ),
    _Break(
        rule="O23",
        algorithms="rl",
        change=_with(train__score_micro_batch_size=32),
        says="must be greater than or equal to the effective number of actor processes",
        fields=(*_SCORED, *_GROUPS),
    ),
    _Break(
        rule="O25",
        algorithms="all",
        since="0.10.1",
        change=lambda spec: (_with if is_in(spec.algorithm, "rl") else _supervised)(
            parallel__tensor_parallel_size=2, memory__precision="float16"
        )(spec),
        says="BF16 is required for tensor parallel training",
        fields=("parallel.tensor_parallel_size", "memory.precision"),
    ),
    _Break(
        rule="O26",
        algorithms="rl",
        change=_with(algorithm__dual_clip=0.9),
        says="dual_clip must be > 1.0, got 0.9",
        fields=("algorithm.dual_clip",),
    ),
    _Break(
        rule="O27",
        algorithms="rl",
        since="0.11.2",
        change=_with(algorithm__correction="sequence", algorithm__correction_mode="clip"),
        says="is_correction_mode=clip requires is_correction_level=token",
        fields=("algorithm.correction_mode", "algorithm.correction"),
    ),
    _Break(
        rule="O27",
        algorithms="rl",
        since="0.11.2",
        change=_with(
            algorithm__correction="token", algorithm__correction_mode="clip", algorithm__correction_gate="binary_kl"
        ),
        says="is_correction_mode=clip requires is_correction_level=token",
        fields=("algorithm.correction_mode", "algorithm.correction_gate"),
    ),
    _Break(
        rule="O27",
        algorithms="rl",
        since="0.11.2",
        change=_with(
            algorithm__correction="token",
            algorithm__correction_mode="mask",
            algorithm__correction_gate="tv",
            algorithm__correction_low=0.25,
        ),
        says="takes an upper bound only",
        fields=("algorithm.correction_gate", "algorithm.correction_low"),
    ),
    _Break(
        rule="O29",
        algorithms="rl",
        since="0.10.1",
        change=_with(reward__overlong_buffer_tokens=4096, rollout__max_new_tokens=1024),
        says="must be >= overlong_buffer_len",
        fields=("reward.overlong_buffer_tokens", "rollout.max_new_tokens"),
    ),
    _Break(
        rule="O29",
        algorithms="rl",
        since="0.10.1",
        change=_with(reward__truncation_penalty=1.5),
        says="must be in [0, 1] or negative",
        fields=("reward.truncation_penalty",),
    ),
    _Break(
        rule="O30",
        algorithms="rl",
        change=_with(train__micro_batch_size=3),
        says="train_batch_size is not equal to micro_batch_per_gpu * gradient_acc_step * world_size",
        fields=(*_BATCH, "rollout.samples_per_prompt", *_GROUPS),
    ),
    _Break(
        rule="O30",
        algorithms=_SUPERVISED,
        change=_supervised(train__batch_size=36),
        says="train_batch_size is not equal to micro_batch_per_gpu * gradient_acc_step * world_size",
        fields=(*_BATCH, *_GROUPS),
    ),
    _Break(
        rule="O30",
        algorithms=("ppo",),
        change=_with(placement__critic_gpus_per_node=3),
        says="train_batch_size is not equal to micro_batch_per_gpu * gradient_acc_step * world_size",
        fields=(*_BATCH, "rollout.samples_per_prompt", *_CRITIC),
    ),
    _Break(
        rule="O31",
        algorithms="rl",
        change=_with(placement__reference_gpus_per_node=8, train__score_micro_batch_size=16),
        says="effective",
        fields=(*_SCORED, *_REFERENCE),
    ),
    _Break(
        rule="O31",
        algorithms=("ppo", "grpo", "rloo"),
        change=_with(
            placement__reward_nodes=2, placement__reward_gpus_per_node=8, train__score_micro_batch_size=8,
            algorithm__dynamic_sampling=False,
        ),
        says="effective",
        fields=(*_SCORED, *_REWARD),
        reward=MODEL,
    ),
    _Break(
        rule="choice",
        algorithms="rl",
        change=_with(algorithm__kl_estimator="k4"),
        says="invalid choice: 'k4'",
        fields=("algorithm.kl_estimator",),
    ),
    _Break(
        rule="choice",
        algorithms="all",
        since="0.10.1",
        change=lambda spec: {"memory.precision": "float64"},
        says="invalid choice: 'float64'",
        fields=("memory.precision",),
    ),
    _Break(
        rule="type",
        algorithms="all",
        change=lambda spec: {"train.seed": 1.5},
        says="invalid int value: '1.5'",
        fields=("train.seed",),
    ),
    _Break(
        rule="type",
        algorithms="all",
        change=lambda spec: {"optimizer.learning_rate": "fast"},
        says="invalid float value: 'fast'",
        fields=("optimizer.learning_rate",),
    ),
)  # fmt: skip


def rejected(each: int = 1) -> Iterator[Rejection]:
    """Yield the specs: `each` of every break, in every version and algorithm that has it."""
    for version in VERSIONS:
        for broken in BREAKS:
            for algorithm in algorithms_at(version):
                if broken.holds(version, algorithm):
                    for place in range(each):
                        yield _broken(_whole(version, algorithm, place), broken)


@cache
def _whole(version: str, algorithm: str, place: int) -> RunSpec:
    return drawn(version, algorithm, random.Random(f"{version} {algorithm} {place}"))


def _broken(spec: RunSpec, broken: _Break) -> Rejection:
    changes = {k: v for k, v in broken.change(spec).items() if k in spec.knobs}
    knobs = {**spec.knobs, **{k: KnobValue(value=v, origin="you") for k, v in changes.items()}}
    data = spec.data
    if is_in(spec.algorithm, "rl"):
        knobs["agent.function_path"] = KnobValue(value=None)
        if broken.reward is None and spec.reward.kind == "model":
            spec = spec.model_copy(update={"reward": RewardSource(kind="file", location="/srv/rewards/one.py")})
    reward = broken.reward or spec.reward
    fields = tuple(field if field in ("algorithm", "reward.kind") else f"knobs.{field}" for field in broken.fields)
    broken_spec = spec.model_copy(update={"knobs": knobs, "reward": reward, "data": data})
    return Rejection(rule=broken.rule, spec=broken_spec, says=broken.says, fields=fields)
