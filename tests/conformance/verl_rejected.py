"""Specs that verl itself refuses: a valid one each, broken in one respect, with the check that says no.

`rejected()` is the oracle for our own rules: whoever checks such a spec has to refuse it and to name one of `fields`.
`verl_report.py` holds them against verl's code (real_verl.py). What cannot be said here at all is not among them:
micro-batches stand in every command (W3), both ends of a clip range too, names are choices (W1, W13, W14, W24, W25),
and a knob that means nothing beside the others is not written (W27: Prometheus without statistics of the engine).

| rule | who says no |
|---|---|
| W2 | validate_config: samples of a step divide over the devices |
| W6 W8 | the workers: samples of an update over data-parallel ranks, ranks over engines and engines over nodes |
| W9 W26 | the dataclasses of rollout and profiler |
| W10 | the FSDP engine: sequence parallelism wants packing |
| W15 W16 W17 W19 W20 | the trainer: its constructor, its pools, its batches, its checkpoints |
| W29 | validate_config: recorded routes want the forward pass that bypass skips |
| correction, distillation, loss | the rollout correction, the teachers, the policy loss |
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from jobs.catalog.knob import applicable
from jobs.catalog.spec.parse import parse_spec
from jobs.catalog.spec.runspec import RunSpec
from jobs.catalog.value import Value
from tests.conformance.rejected import Rejection
from tests.conformance.verl_specs import sections

Values = Mapping[str, Value]
GROUPED = ("grpo", "dapo", "dr_grpo", "gspo", "rloo", "reinforce_pp_baseline")
RL = (*GROUPED, "ppo", "reinforce_pp")
WITH_RATIO = tuple(a for a in RL if a != "gspo")  # whose policy loss can be chosen
FEW = ("grpo", "ppo", "dapo")
MODEL = {"kind": "model", "location": "/srv/models/reward"}

VALID: Values = {
    "placement.policy_nodes": 1,
    "placement.policy_gpus_per_node": 8,
    "placement.rollout_tensor_parallel": 2,
    "rollout.prompts_per_step": 64,
    "rollout.samples_per_prompt": 8,
    "train.updates_per_rollout": 2,
    "reward.manager": "naive",
}
"""A small run of which every algorithm's checks say yes."""

SEPARATE: Values = {
    "async.mode": "separate",
    "async.updates_per_sync": 2,
    "placement.rollout_nodes": 1,
    "placement.rollout_gpus_per_node": 8,
    "rollout.sync_backend": "nccl",
}
DISTILL: Values = {
    "algorithm.distillation": True,
    "models.teacher_path": "/srv/models/teacher",
    "placement.teacher_nodes": 1,
    "placement.teacher_gpus_per_node": 8,
    "placement.teacher_tensor_parallel": 2,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Break:
    """One way to break a valid spec: `on` makes it another valid one first, `change` breaks it."""

    rule: str
    algorithms: tuple[str, ...]
    change: Values
    says: str
    fields: tuple[str, ...]
    on: Values | None = None
    reward: Mapping[str, str] | None = None


SAMPLES = ("rollout.prompts_per_step", "rollout.samples_per_prompt", "placement.policy_gpus_per_node")
UPDATES = (*SAMPLES, "train.updates_per_rollout", "parallel.sequence_parallel_size", "placement.policy_nodes")
ENGINES = ("placement.rollout_tensor_parallel", "placement.rollout_data_parallel", "placement.policy_gpus_per_node")
REJECTION = ("algorithm.rejection", "algorithm.rejection_threshold")

BREAKS = (
    Break(
        rule="W2",
        algorithms=RL,
        change={"rollout.prompts_per_step": 9, "rollout.samples_per_prompt": 3, "train.updates_per_rollout": 1},
        says="must be divisible by minimal possible batch size",
        fields=SAMPLES,
    ),
    Break(
        rule="W6",
        algorithms=RL,
        change={"rollout.samples_per_prompt": 2, "train.updates_per_rollout": 32},
        says="mini_batch_size=4",
        fields=UPDATES,
    ),
    Break(
        rule="W8",
        algorithms=RL,
        change={"placement.rollout_tensor_parallel": 3},
        says="is not divisible by infer_world_size: 3",
        fields=ENGINES,
    ),
    Break(
        rule="W8",
        algorithms=FEW,
        change={"placement.policy_gpus_per_node": 4, "placement.rollout_tensor_parallel": 8},
        says="rollout world_size: 4 is not divisible",
        fields=ENGINES,
    ),
    Break(
        rule="W8",
        algorithms=FEW,
        change={
            "placement.policy_nodes": 3,
            "placement.rollout_tensor_parallel": 12,
            "rollout.prompts_per_step": 96,
        },
        says="world_size 12 must be divisible by gpus_per_node 8",
        fields=ENGINES,
    ),
    Break(
        rule="W9",
        algorithms=RL,
        change={"placement.rollout_expert_parallel": 4},
        says="expert_parallel_size must be equal",
        fields=("placement.rollout_expert_parallel", *ENGINES),
    ),
    Break(
        rule="W10",
        algorithms=RL,
        change={"parallel.sequence_parallel_size": 2, "train.packing": False},
        says="you must enable `use_remove_padding`",
        fields=("parallel.sequence_parallel_size", "train.packing"),
    ),
    Break(
        rule="W15",
        algorithms=FEW,
        on=SEPARATE,
        change={"async.updates_per_sync": 4},
        says="train_batch_size must equal parameter_sync_step",
        fields=("async.updates_per_sync", "train.updates_per_rollout", "rollout.prompts_per_step"),
    ),
    Break(
        rule="W15",
        algorithms=FEW,
        on=SEPARATE,
        change={"placement.rollout_nodes": 0},
        says="nnodes must be > 0",
        fields=("placement.rollout_nodes", "async.mode"),
    ),
    Break(
        rule="W15",
        algorithms=FEW,
        on=SEPARATE,
        change={"rollout.sync_backend": "naive"},
        says="backend for separate async",
        fields=("rollout.sync_backend", "async.mode"),
    ),
    Break(
        rule="W15",
        algorithms=FEW,
        on=SEPARATE,
        reward=MODEL,
        change={"algorithm.dynamic_sampling": False},
        says="Colocate reward model",
        fields=("placement.reward_own_pool", "async.mode"),
    ),
    Break(
        rule="W16",
        algorithms=FEW,
        reward=MODEL,
        change={"algorithm.dynamic_sampling": True},
        says="requires the reward metric at sampling time",
        fields=("algorithm.dynamic_sampling", "placement.reward_own_pool"),
    ),
    Break(
        rule="W17",
        algorithms=tuple(a for a in RL if a != "dapo"),
        change={"rollout.prompts_per_generation": 48},
        says="must be a positive multiple of gen_batch_size",
        fields=("rollout.prompts_per_generation", "rollout.prompts_per_step"),
    ),
    Break(
        rule="W19",
        algorithms=RL,
        reward=MODEL,
        change={"placement.reward_own_pool": True, "placement.reward_nodes": 0},
        says="reward.reward_model.nnodes must be greater than 0",
        fields=("placement.reward_nodes", "placement.reward_own_pool"),
    ),
    Break(
        rule="W19",
        algorithms=FEW,
        change={"placement.reward_own_pool": True, "placement.reward_nodes": 0},  # also without a reward model
        says="reward.reward_model.nnodes must be greater than 0",
        fields=("placement.reward_nodes", "placement.reward_own_pool"),
    ),
    Break(
        rule="W20",
        algorithms=RL,
        change={"checkpoint.resume": "path", "checkpoint.resume_from": "/srv/checkpoints/last"},
        says="must specify the global_steps",
        fields=("checkpoint.resume_from", "checkpoint.resume"),
    ),
    Break(
        rule="W20",
        algorithms=FEW,
        change={"checkpoint.resume": "path"},
        says="resume ckpt must be str type",
        fields=("checkpoint.resume_from", "checkpoint.resume"),
    ),
    Break(
        rule="W26",
        algorithms=RL,
        change={"profiling.tool": "torch", "profiling.torch_contents": "gpu"},
        says="gpu",
        fields=("profiling.torch_contents",),
    ),
    Break(
        rule="W26",
        algorithms=FEW,
        change={"profiling.tool": "npu", "profiling.npu_contents": "cuda"},
        says="cuda",
        fields=("profiling.npu_contents",),
    ),
    Break(
        rule="W26",
        algorithms=FEW,
        change={"profiling.tool": "torch", "profiling.token_start": 20, "profiling.token_end": 10},
        says="profile_token_end must be > profile_token_start",
        fields=("profiling.token_start", "profiling.token_end"),
    ),
    Break(
        rule="W29",
        algorithms=FEW,
        change={
            "parallel.engine": "megatron",
            "async.trainer_routing_replay": "R2",
            "algorithm.correction_bypass": True,
        },
        says="requires algorithm.rollout_correction.bypass_mode=False",
        fields=("async.trainer_routing_replay", "algorithm.correction_bypass"),
    ),
    Break(
        rule="correction",
        algorithms=FEW,
        change={"algorithm.correction": "token", "algorithm.correction_cap": "5.0_0.5"},
        says="lower bound must be <= upper bound",
        fields=("algorithm.correction_cap",),
    ),
    Break(
        rule="correction",
        algorithms=FEW,
        change={"algorithm.correction": "sequence", "algorithm.correction_cap": "0"},
        says="upper bound must be positive",
        fields=("algorithm.correction_cap",),
    ),
    Break(
        rule="correction",
        algorithms=FEW,
        change={"algorithm.correction": "token", "algorithm.correction_cap": "much"},
        says="Invalid rollout_is_threshold 'much'",
        fields=("algorithm.correction_cap",),
    ),
    Break(
        rule="correction",
        algorithms=FEW,
        change={"algorithm.rejection": "token_k1"},
        says="rollout_rs_threshold must be",
        fields=REJECTION,
    ),
    Break(
        rule="correction",
        algorithms=FEW,
        change={"algorithm.rejection": "token_k9", "algorithm.rejection_threshold": "2.0"},
        says="Invalid rollout_rs option: token_k9",
        fields=REJECTION,
    ),
    Break(
        rule="correction",
        algorithms=FEW,
        change={"algorithm.rejection": "token_k3", "algorithm.rejection_threshold": "-1"},
        says="must be positive",
        fields=REJECTION,
    ),
    Break(
        rule="loss",
        algorithms=WITH_RATIO,
        change={"algorithm.policy_loss": "dro"},
        says="dro_beta must be a positive value",
        fields=("algorithm.dro_beta", "algorithm.policy_loss"),
    ),
    Break(
        rule="loss",
        algorithms=WITH_RATIO,
        change={"algorithm.policy_loss": "clip_cov", "algorithm.clip_cov_share": 0.0},
        says="should be larger than 0",
        fields=("algorithm.clip_cov_share", "algorithm.policy_loss"),
    ),
    Break(
        rule="loss",
        algorithms=WITH_RATIO,
        change={"algorithm.policy_loss": "kl_cov", "algorithm.kl_cov_share": 0.0},
        says="kl_cov_ratio should be larger than 0",
        fields=("algorithm.kl_cov_share", "algorithm.policy_loss"),
    ),
    Break(
        rule="distillation",
        algorithms=FEW,
        on=DISTILL,
        change={"placement.teacher_tensor_parallel": 3},
        says="must divide the distillation resource pool",
        fields=("placement.teacher_tensor_parallel", "placement.teacher_gpus_per_node", "placement.teacher_nodes"),
    ),
    Break(
        rule="W19",
        algorithms=FEW,
        on=DISTILL,
        change={"placement.teacher_nodes": 0},
        says="must be",
        fields=("placement.teacher_nodes", "algorithm.distillation"),
    ),
)


def rejected(version: str) -> Iterator[Rejection]:
    """Return every spec that this version of verl refuses."""
    for broken in BREAKS:
        for algorithm in broken.algorithms:
            spec = made(version, algorithm, {**VALID, **(broken.on or {}), **broken.change}, broken.reward)
            yield Rejection(rule=broken.rule, spec=spec, says=broken.says, fields=broken.fields)


def starts(version: str) -> Iterator[RunSpec]:
    """Return the valid specs that the breaks start from: of each of them verl has to say yes."""
    for on in (None, SEPARATE, DISTILL):
        for algorithm in RL if on is None else FEW:
            yield made(version, algorithm, {**VALID, **(on or {})}, None)


def made(version: str, algorithm: str, values: Values, reward: Mapping[str, str] | None) -> RunSpec:
    """Return a spec with these values, as far as the version has such knobs for the algorithm."""
    here = applicable(algorithm, "verl", version)
    raw = {
        "algorithm": algorithm,
        "trainer": {"name": "verl", "version": version},
        "knobs": {knob_id: value for knob_id, value in values.items() if knob_id in here},
    }
    return parse_spec(raw | sections(algorithm) | ({"reward": reward} if reward else {}))
