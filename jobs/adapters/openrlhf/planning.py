"""OpenRLHF's knobs: DeepSpeed ZeRO, groups of devices per role or all colocated, vLLM beside or asleep.

Sources: OpenRLHF utils/deepspeed (bf16 weights, float32 masters; frozen models are sharded in stage 3 only, and copied
whole below it; Adam on the host is DeepSpeed's), models/actor.py (logits are turned into float32), models/model.py,
cli/train_ppo_ray.py (groups), trainer/ray/vllm_engine.py (bfloat16 engines, sleep level 1), and what stands in knobs
catalogue's help. Token budgets count per device: a ring or tensor parallel group holds as many times more.
"""

from collections.abc import Iterator
from typing import Literal

from jobs.adapters.openrlhf.layouts import openrlhf_spaces
from jobs.catalog.algorithm import is_in
from jobs.catalog.spec.placement import placement_of
from jobs.catalog.spec.runspec import RunSpec
from jobs.planner.job import (
    Checkpointing,
    Engine,
    Fleet,
    FrozenModel,
    Job,
    Kernels,
    Layout,
    Method,
    Offload,
    Optimizer,
    Training,
)
from jobs.planner.read.context import MicroBatches, RunContext, split_targets
from jobs.planner.read.knob_values import ATTENTION, COMPUTE, ELEMENT_BYTES
from jobs.planner.search.axes import Changes
from jobs.planner.search.layout_space import Space
from jobs.planner.search.plan_changes import Situation
from jobs.planner.shapes.model_shape import ModelShape
from jobs.planner.trainer import TrainerPlanning

_OPTIMIZERS: dict[str, Optimizer] = {"adam": "adam", "muon": "muon", "adam_8bit": "adam_8bit"}
NF4_BYTES = 4.127 / 8  # bits of nf4 with double quantization: 4 + 8/64 + 32/(64*256)


def _job(source: RunContext) -> Job:
    """Return the job of a run of OpenRLHF."""
    return _rl(source) if source.is_rl else _supervised(source)


def _supervised(source: RunContext) -> Job:
    spec, knobs = source.spec, source.knobs
    rows = _rows(source, role="policy")
    is_reward = spec.algorithm == "rm"
    policy = _trained(source, "policy", source.models.policy, rows, is_scalar=is_reward)
    frozen: tuple[FrozenModel, ...] = ()
    if spec.algorithm == "dpo":
        frozen = (
            FrozenModel(
                role="reference",
                model=source.models.reference or source.models.policy,
                layout=_frozen_layout(source, "policy"),
                weight_bytes=_frozen_bytes(source),
                is_offloaded=knobs.flag("memory.reference_offload"),
                micro_batch=2 * rows.size,
                sequence=rows.sequence,
            ),
        )
    return Job(
        algorithm=spec.algorithm,
        fleet=source.fleet,
        policy=policy,
        frozen=frozen,
        scores_beside_graph=spec.algorithm == "dpo",  # trainer/dpo_trainer.py: the policy passes first
    )


def _rl(source: RunContext) -> Job:
    spec, knobs, models = source.spec, source.knobs, source.models
    is_async, is_shared = knobs.flag("async.enable"), knobs.flag("placement.colocate_all")
    is_colocated = is_shared and not is_async
    score = _rows(source, role="policy", is_scoring=True)
    policy = _trained(source, "policy", models.policy, _rows(source, role="policy"))
    critic = None
    if source.spec.needs("critic"):
        shape = models.critic or models.reward or models.policy
        critic = _trained(source, "critic", shape, _rows(source, role="critic"), is_scalar=True)
    engines, tensor = placement_of(spec).num_engines(spec), knobs.whole("placement.rollout_tensor_parallel", 1)
    knobs.get("placement.rollout_engines")
    engine = Engine(
        model=models.policy,
        num_engines=engines,
        tensor=tensor,
        utilization=knobs.number("rollout.gpu_memory_fraction", 0.95),
        weight_bytes=2.0,
        max_model_len=source.longest,
        is_eager=knobs.flag("rollout.enforce_eager"),
        has_prefix_cache=knobs.flag("rollout.enable_prefix_caching"),
        sleep_level=1 if is_colocated and knobs.flag("rollout.sleep") else 0,
    )
    schedule: Literal["sync", "one_step_off", "async"] = "sync"
    if is_async:
        schedule = "async" if knobs.flag("async.partial_rollout") else "one_step_off"
    return Job(
        algorithm=spec.algorithm,
        fleet=source.fleet,
        policy=policy,
        critic=critic,
        frozen=_frozen_models(source, score, is_shared=is_shared),
        engine=engine,
        rollouts=source.rollouts(score=score),
        placement="colocated" if is_colocated else "split",
        schedule=schedule,
        staleness=float(knobs.whole("async.queue_size", 1)) if schedule == "async" else 0.0,
        engine_devices=0 if is_colocated else engines * tensor,
        sync_transport="tensors",
        critic_pool="policy" if is_shared else "critic",
    )


def _frozen_models(source: RunContext, score: MicroBatches, *, is_shared: bool) -> tuple[FrozenModel, ...]:
    knobs, models = source.knobs, source.models
    frozen = []
    if source.spec.needs("reference"):
        beside = is_shared or knobs.flag("placement.colocate_policy_reference")
        frozen.append(
            FrozenModel(
                role="reference",
                model=models.reference or models.policy,
                layout=_frozen_layout(source, "reference"),
                weight_bytes=_frozen_bytes(source),
                is_offloaded=knobs.flag("memory.reference_offload"),
                micro_batch=score.size,
                sequence=score.sequence,
                pool="policy" if beside else "reference",
            )
        )
    if source.has_reward_model:
        beside_critic = source.spec.needs("critic") and knobs.flag("placement.colocate_critic_reward")
        frozen.append(
            FrozenModel(
                role="reward",
                model=models.reward or models.policy,
                layout=_frozen_layout(source, "reward"),
                weight_bytes=_frozen_bytes(source),
                is_offloaded=knobs.flag("memory.reward_offload"),
                has_head=False,
                micro_batch=score.size,
                sequence=score.sequence,
                pool="policy" if is_shared else "critic" if beside_critic else "reward",
            )
        )
    return tuple(frozen)


def _degree(source: RunContext) -> int:
    """Return how many devices share one micro-batch."""
    return source.knobs.whole("parallel.sequence_parallel_size", 1) * source.knobs.whole(
        "parallel.tensor_parallel_size", 1
    )


def _rows(source: RunContext, *, role: str, is_scoring: bool = False) -> MicroBatches:
    """Return the micro-batches of a group. Packed samples of one are one row."""
    knobs, degree = source.knobs, _degree(source)
    ranks = max(source.group(role) // degree, 1)
    if knobs.flag("train.dynamic_batch"):
        tokens = knobs.whole("train.max_tokens_per_gpu", 16192)
        if is_scoring:
            tokens = knobs.whole("train.score_max_tokens_per_gpu") or tokens
        return source.packed(tokens * degree, ranks=ranks)
    micro = knobs.whole("train.score_micro_batch_size" if is_scoring else "train.micro_batch_size", 1)
    return source.rows(micro, ranks=ranks, is_packed=knobs.flag("train.packing"))


def _layout(source: RunContext, role: str, shards: int) -> Layout:
    knobs = source.knobs
    secondary = knobs.whole("memory.zero_secondary_partition", 1)
    return Layout(
        num_devices=max(source.group(role), 1),
        tensor=knobs.whole("parallel.tensor_parallel_size", 1),
        context=knobs.whole("parallel.sequence_parallel_size", 1),
        shards=shards,
        shard_group=secondary if secondary > 1 else 0,
        has_sequence_parallel=False,
    )


def _frozen_layout(source: RunContext, role: str) -> Layout:
    return _layout(source, role, 3 if source.knobs.whole("memory.zero_stage") == 3 else 0)


def _frozen_bytes(source: RunContext) -> float:
    if source.knobs.flag("quantization.load_in_4bit"):
        return NF4_BYTES
    return ELEMENT_BYTES[source.knobs.text("memory.precision", "bfloat16")]


def _trained(
    source: RunContext, role: str, shape: ModelShape, rows: MicroBatches, *, is_scalar: bool = False
) -> Training:
    knobs, spec = source.knobs, source.spec
    precision = knobs.text("memory.precision", "bfloat16")
    summed = knobs.text("memory.gradient_accumulation_precision")
    stage = knobs.whole("memory.zero_stage")
    rank = knobs.whole("lora.rank")
    is_pairs = is_in(spec.algorithm, "pairs")
    kernels: Kernels = "eager"
    if knobs.flag("kernels.liger"):
        kernels = "liger"
    if knobs.flag("kernels.deepcompile"):
        kernels = "compiled"
    checkpointing: Checkpointing = "full" if knobs.flag("memory.gradient_checkpointing") else "none"
    is_packed = knobs.flag("train.packing") or knobs.flag("train.dynamic_batch")
    attention = ATTENTION[knobs.text("kernels.attention", "flash_attention_2")]
    if is_packed and not attention.startswith("flash"):
        attention = "flash2"  # it puts flash attention in the place of any other
    return Training(
        model=shape,
        layout=_layout(source, role, stage),
        family="deepspeed",
        method=_method(rank, is_quantized=knobs.flag("quantization.load_in_4bit")),
        lora_rank=rank,
        lora_targets=split_targets(knobs.text("lora.target_modules", "all-linear")),
        has_adapter_dropout=knobs.number("lora.dropout") > 0,
        weight_bytes=ELEMENT_BYTES[precision],
        base_bytes=_frozen_bytes(source),
        gradient_bytes=ELEMENT_BYTES[summed] if summed else 4.0 if stage == 0 else ELEMENT_BYTES[precision],
        optimizer=_OPTIMIZERS[knobs.text("optimizer.kind" if role == "policy" else "optimizer.critic_kind", "adam")],
        has_master=True,
        compute=COMPUTE[precision],
        kernels=kernels,
        attention=ATTENTION["flash_attention_2" if is_packed else knobs.text("kernels.attention", "flash_attention_2")],
        checkpointing=checkpointing,
        head="unfused",
        has_entropy=source.is_rl and not is_scalar and knobs.get("algorithm.entropy_coefficient") is not None,
        objective="scalar" if is_scalar else "pairs" if is_pairs else "lm",
        # A reward model sees both answers of a pair too; its objective says only that it has no vocabulary.
        micro_batch=rows.size * (2 if is_scalar and is_pairs else 1),
        sequence=rows.sequence,
        document=rows.document or (round(source.usual) if is_packed else 0),
        is_padded=not is_packed,
        num_micro_batches=rows.count,
        offload=Offload(
            optimizer=1.0 if knobs.flag("memory.adam_offload") else 0.0,
            optimizer_between_phases=source.is_rl and stage == 3 and knobs.flag("memory.trainer_sleep"),
        ),
    )


def _method(rank: int, *, is_quantized: bool) -> Method:
    if rank <= 0:
        return "full"
    return "qlora" if is_quantized else "lora"


class OpenRLHFPlanning:
    """How the planner sees a run of OpenRLHF."""

    def job(self, source: RunContext) -> Job:
        """See TrainerPlanning."""
        return _job(source)

    def spaces(self, spec: RunSpec, shape: ModelShape, fleet: Fleet, size: int) -> Iterator[Space]:
        """See TrainerPlanning."""
        return openrlhf_spaces(spec, shape, fleet, size)

    def budget_devices(self, layout: Layout) -> int:
        """See TrainerPlanning."""
        return layout.context * layout.ulysses * layout.tensor

    def engine_changes(self, *, tensor: int, engines: int) -> Changes:
        """See TrainerPlanning."""
        return {"placement.rollout_tensor_parallel": tensor, "placement.rollout_engines": engines}

    def more_devices(self, here: Situation) -> Changes | None:  # noqa: ARG002
        """See TrainerPlanning: groups are sized one by one."""
        return None


PLUGIN: TrainerPlanning = OpenRLHFPlanning()
