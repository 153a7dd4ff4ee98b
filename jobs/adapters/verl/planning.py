"""verl's knobs: FSDP or Megatron, one pool of devices for all roles unless the mode is separate, an engine that sleeps.

Sources: verl workers/engine (FSDP keeps weights in `model_dtype`, float32 unless told otherwise, and computes in
bfloat16; Adam's states have the weights' type; a frozen reference is always in host memory between its layers; with
LoRA it is the policy without its adapters), utils/torch_functional (cross entropy of flash attention),
workers/engine/megatron (bfloat16 weights, float32 gradients and masters, distributed optimizer), workers/rollout (sleep
level 2; 1 where an adapter is laid over resident weights), and perf/perf_tuning. Offload of weights and optimizer
happens between phases: the step itself runs on the device, except with FSDP2's own policy and Megatron's CPU optimizer.
Token budgets count per device.
"""

from collections.abc import Iterator

from jobs.adapters.verl.layouts import verl_spaces
from jobs.catalog.spec.runspec import RunSpec
from jobs.planner.job import (
    Attention,
    Checkpointing,
    Engine,
    Family,
    Fleet,
    FrozenModel,
    Head,
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

_ATTENTION: dict[str, Attention] = {**ATTENTION, "unfused": "eager", "local": "eager"}
_OPTIMIZERS: dict[str, Optimizer] = {"muon": "muon", "adam_8bit": "adam_8bit"}
_RECOMPUTE: dict[str, Checkpointing] = {"none": "none", "selective": "selective", "full": "full"}
_FUSED_CHUNK = 512
"""Tokens that verl's fused head takes at once (utils/experimental/torch_functional.py, FusedLinearForPPO)."""


def _job(source: RunContext) -> Job:
    """Return the job of a run of verl."""
    spec, knobs, models = source.spec, source.knobs, source.models
    devices = max(source.group("policy"), 1)
    policy = (_megatron if _is_megatron(source) else _fsdp)(source, models.policy, devices)
    if not source.is_rl:
        return Job(algorithm=spec.algorithm, fleet=source.fleet, policy=policy)
    mode = knobs.text("async.mode", "sync")
    is_split = mode == "separate"
    pool = source.group("rollout") if is_split else devices
    score = _rows(source, policy.layout, is_scoring=True)
    return Job(
        algorithm=spec.algorithm,
        fleet=source.fleet,
        policy=policy,
        critic=_critic(source, devices) if source.spec.needs("critic") else None,
        frozen=_frozen_models(source, policy, score),
        engine=_engine(source, pool, is_split=is_split, has_adapter=policy.method != "full"),
        rollouts=source.rollouts(score=score, has_old_logprobs=not knobs.flag("algorithm.correction_bypass")),
        placement="split" if is_split else "colocated",
        schedule="sync" if mode == "sync" else "async",
        staleness=float(knobs.whole("async.max_staleness", 8)) if mode != "sync" else 0.0,
        engine_devices=pool if is_split else 0,
        sync_bucket_bytes=knobs.whole("rollout.sync_bucket_mib", 2048) << 20,
        sync_transport="broadcast",
    )


def _engine(source: RunContext, pool: int, *, is_split: bool, has_adapter: bool) -> Engine:
    knobs = source.knobs
    # Replicas inside an engine hold weights and cache of their own; experts alone are spread over all of them.
    tensor = knobs.whole("placement.rollout_tensor_parallel", 1)
    knobs.get("placement.rollout_data_parallel")
    precision = ELEMENT_BYTES[knobs.text("memory.rollout_precision", "bfloat16")]
    is_fp8 = knobs.text("quantization.rollout", "none") == "fp8"
    has_fp8_cache = knobs.text("quantization.kv_cache", "auto").startswith("fp8")
    sleeps = knobs.flag("rollout.sleep") and not is_split
    keeps_base = has_adapter and not knobs.flag("lora.merge")
    return Engine(
        model=source.models.policy,
        name="sglang" if knobs.text("rollout.backend", "vllm") == "sglang" else "vllm",
        num_engines=max(pool // tensor, 1),
        tensor=tensor,
        expert=knobs.whole("placement.rollout_expert_parallel", 1),
        utilization=knobs.number("rollout.gpu_memory_fraction", 0.5),
        weight_bytes=1.0 if is_fp8 else precision,
        kv_bytes=1.0 if has_fp8_cache else precision,
        max_num_seqs=knobs.whole("rollout.max_num_seqs", 256),
        max_batched_tokens=knobs.whole("rollout.max_batched_tokens", 8192),
        max_model_len=knobs.whole("rollout.max_model_tokens") or source.longest,
        is_eager=knobs.flag("rollout.enforce_eager"),
        has_prefix_cache=knobs.flag("rollout.enable_prefix_caching"),
        sleep_level=0 if not sleeps else 1 if keeps_base else 2,
    )


def _frozen_models(source: RunContext, policy: Training, score: MicroBatches) -> tuple[FrozenModel, ...]:
    spec, knobs, models = source.spec, source.knobs, source.models
    frozen = []
    if spec.needs("reference") and policy.method == "full":
        is_megatron = policy.family == "megatron"
        frozen.append(
            FrozenModel(
                role="reference",
                model=models.reference or models.policy,
                layout=policy.layout,
                is_offloaded=policy.offload.params_between_phases if is_megatron else True,
                micro_batch=score.size,
                sequence=score.sequence,
            )
        )
    if source.has_reward_model:
        is_apart = knobs.flag("placement.reward_own_pool")
        size = source.group("reward") if is_apart else policy.layout.num_devices
        frozen.append(
            FrozenModel(
                role="reward",
                model=models.reward or models.policy,
                layout=Layout(num_devices=size, tensor=knobs.whole("reward.model_tensor_parallel", 2)),
                is_offloaded=not is_apart,
                has_head=False,
                micro_batch=score.size,
                sequence=score.sequence,
                pool="reward" if is_apart else "policy",
            )
        )
    if knobs.flag("algorithm.distillation"):
        tensor = knobs.whole("placement.teacher_tensor_parallel", 2)
        frozen.append(
            FrozenModel(
                role="teacher",
                model=models.teacher or models.policy,
                layout=Layout(num_devices=source.group("teacher"), tensor=tensor),
                micro_batch=score.size,
                sequence=score.sequence,
                pool="teacher",
            )
        )
    return tuple(frozen)


def _layout(source: RunContext, devices: int) -> Layout:
    knobs = source.knobs
    if _is_megatron(source):
        tensor = knobs.whole("parallel.tensor_parallel_size", 1)
        first, last = _end_stages(source)
        return Layout(
            num_devices=devices,
            tensor=tensor,
            pipeline=knobs.whole("parallel.pipeline_parallel_size", 1),
            virtual=knobs.whole("parallel.virtual_pipeline_stages") or 1,
            context=knobs.whole("parallel.context_parallel_size", 1),
            expert=knobs.whole("parallel.expert_parallel_size", 1),
            expert_tensor=knobs.whole("parallel.expert_tensor_parallel_size") or tensor,
            shards=1 if knobs.flag("parallel.distributed_optimizer") else 0,
            has_sequence_parallel=knobs.flag("parallel.megatron_sequence_parallel"),
            first_stage_layers=first,
            last_stage_layers=last,
        )
    group = knobs.whole("memory.fsdp_group_size")
    return Layout(
        num_devices=devices,
        ulysses=knobs.whole("parallel.sequence_parallel_size", 1),
        shards=3,
        shard_group=group if 0 < group < devices else 0,
    )


def _end_stages(source: RunContext) -> tuple[int, int]:
    """Return the layers of the first and the last stage where they are not those of the others, else 0.

    An embedding or a loss that is counted as a layer takes the place of one on its stage.
    """
    knobs = source.knobs
    stages = knobs.whole("parallel.pipeline_parallel_size", 1)
    embeds = int(knobs.flag("parallel.count_embedding_as_layer"))
    loses = int(knobs.flag("parallel.count_loss_as_layer"))
    if embeds or loses:
        whole = (source.models.policy.num_layers + embeds + loses) // stages
        return whole - embeds, whole - loses
    return knobs.whole("parallel.first_stage_layers"), knobs.whole("parallel.last_stage_layers")


def _is_megatron(source: RunContext) -> bool:
    return source.knobs.text("parallel.engine", "fsdp") == "megatron"


def _rows(source: RunContext, layout: Layout, *, is_scoring: bool = False, is_critic: bool = False) -> MicroBatches:
    knobs = source.knobs
    degree = layout.context * layout.ulysses
    ranks = max(layout.data, 1)
    if knobs.flag("train.dynamic_batch"):
        tokens = knobs.whole("train.max_tokens_per_gpu", 16384)
        if is_scoring:
            tokens = knobs.whole("train.score_max_tokens_per_gpu") or tokens
        if is_critic:
            tokens = knobs.whole("train.critic_max_tokens_per_gpu", 32768)
        return source.packed(tokens * degree, ranks=ranks)
    micro = knobs.whole("train.score_micro_batch_size" if is_scoring else "train.micro_batch_size", 1)
    return source.rows(micro, ranks=ranks, is_packed=knobs.flag("train.packing"))


def _entropy(source: RunContext) -> bool:
    """Return whether the update takes the entropy of the whole distribution at once, and keeps what that needs."""
    knobs = source.knobs
    is_asked = knobs.number("algorithm.entropy_coefficient") > 0 or knobs.flag("algorithm.log_entropy")
    is_small = knobs.flag("memory.entropy_chunking") or knobs.flag("memory.entropy_checkpointing")
    knobs.get("memory.entropy_chunk_tokens")
    return source.is_rl and is_asked and not is_small and not knobs.flag("kernels.fused_head")


def _fsdp(source: RunContext, shape: ModelShape, devices: int, *, is_critic: bool = False) -> Training:
    knobs = source.knobs
    layout = _layout(source, devices)
    rows = _rows(source, layout, is_critic=is_critic)
    rank = knobs.whole("lora.critic_rank" if is_critic else "lora.rank")
    element = ELEMENT_BYTES[knobs.text("memory.master_precision", "float32")]
    is_packed = knobs.flag("train.packing")
    is_fused = knobs.flag("kernels.fused_head") and not is_critic
    if is_fused:
        knobs.get("kernels.fused_head_backend")
    kernels: Kernels = "liger" if knobs.flag("kernels.liger") else "eager"
    attention = _ATTENTION[knobs.text("kernels.attention", "flash_attention_2")]
    # The package of flash attention brings a cross entropy that works in place, and verl takes it where it is there.
    head: Head = "chunked" if is_fused else "inplace" if attention.startswith("flash") else "unfused"
    return Training(
        model=shape,
        layout=layout,
        family="fsdp",
        method="lora" if rank > 0 else "full",
        lora_rank=rank,
        lora_targets=split_targets(knobs.text("lora.target_modules", "all-linear")),
        weight_bytes=element,
        base_bytes=element,
        gradient_bytes=element,
        optimizer=_optimizer(source, element),
        has_master=False,  # the weights are the master
        has_fused_optimizer=False,  # torch's AdamW as it is made without a word on it (workers/fsdp_workers.py)
        compute=COMPUTE[knobs.text("memory.precision", "bfloat16")],
        kernels=kernels,
        attention=attention,
        checkpointing="full" if knobs.flag("memory.gradient_checkpointing") else "none",
        head=head,
        head_chunk=_FUSED_CHUNK if is_fused else 0,
        has_entropy=_entropy(source) and not is_critic,
        objective="scalar" if is_critic else "lm",
        micro_batch=rows.size,
        sequence=rows.sequence,
        document=rows.document or (round(source.usual) if is_packed else 0),
        is_padded=not is_packed,
        num_micro_batches=rows.count,
        keeps_gradients=knobs.flag("parallel.defer_gradient_sync"),
        resharded=knobs.flag("memory.reshard_after_forward"),
        is_sharded_by_tensor=knobs.text("parallel.fsdp_version", "1") == "2",
        offload=_fsdp_offload(source, is_critic=is_critic),
    )


def _fsdp_offload(source: RunContext, *, is_critic: bool) -> Offload:
    knobs = source.knobs
    whose = "critic_" if is_critic else ""
    stays_on_host = knobs.flag("memory.cpu_offload_policy")
    weights_leave = knobs.flag(f"memory.{whose}param_offload")
    states_leave = knobs.flag(f"memory.{whose}optimizer_offload")
    return Offload(
        optimizer=1.0 if stays_on_host else 0.0,
        params=stays_on_host,
        activations=knobs.flag("memory.activation_offload"),
        params_between_phases=weights_leave or stays_on_host,
        optimizer_between_phases=states_leave or stays_on_host,
        is_moved_by_phase=(weights_leave or states_leave) and not stays_on_host,
    )


def _optimizer(source: RunContext, element: float) -> Optimizer:
    knobs = source.knobs
    knobs.get("optimizer.implementation")
    kind = knobs.text("optimizer.kind", "adam")
    if kind in _OPTIMIZERS:
        return _OPTIMIZERS[kind]
    return "adam" if element == 4.0 else "adam_bf16"  # its states have the type of the weights


def _megatron(source: RunContext, shape: ModelShape, devices: int, *, is_critic: bool = False) -> Training:
    knobs = source.knobs
    layout = _layout(source, devices)
    rows = _rows(source, layout, is_critic=is_critic)
    rank = 0 if is_critic else knobs.whole("lora.megatron_rank")
    attention = knobs.text("kernels.megatron_attention", "flash")
    is_fused = knobs.flag("kernels.fused_head") and not is_critic
    method: Method = "lora" if rank > 0 else "full"
    family: Family = "megatron"
    share = 0.0
    if knobs.flag("memory.megatron_cpu_optimizer"):
        share = knobs.number("memory.megatron_cpu_optimizer_share")
    sends_once = knobs.text("kernels.megatron_moe_dispatcher") == "flex"
    if sends_once:  # by DeepEP, which nothing else uses
        knobs.get("kernels.megatron_moe_deepep")
    weights_leave = knobs.flag("memory.megatron_param_offload")
    states_leave = knobs.flag("memory.megatron_optimizer_offload")
    recompute = _RECOMPUTE[knobs.text("memory.megatron_recompute", "none")]
    if recompute == "full" and knobs.text("memory.megatron_recompute_method") != "block":
        knobs.get("memory.megatron_recompute_layers")  # of one block; each keeps one input
    return Training(
        model=shape,
        layout=layout,
        family=family,
        method=method,
        lora_rank=rank,
        lora_targets=split_targets(knobs.text("lora.megatron_target_modules", "all-linear")),
        gradient_bytes=4.0,
        optimizer=_OPTIMIZERS.get(knobs.text("optimizer.kind", "adam"), "adam"),
        compute="bf16" if knobs.text("quantization.megatron_fp8", "none") == "none" else "fp8",
        kernels="megatron",
        dispatcher="flex" if sends_once else "alltoall",
        attention=_ATTENTION.get(attention, "flash2"),
        checkpointing=recompute,
        head="chunked" if is_fused else "parallel",
        head_chunk=_FUSED_CHUNK if is_fused else 0,
        has_entropy=_entropy(source) and not is_critic,
        objective="scalar" if is_critic else "lm",
        micro_batch=rows.size,
        sequence=rows.sequence,
        document=rows.document or (round(source.usual) if knobs.flag("train.packing") else 0),
        is_padded=not knobs.flag("train.packing"),
        num_micro_batches=rows.count,
        offload=Offload(
            optimizer=share,
            has_one_thread=True,
            params_between_phases=weights_leave,
            optimizer_between_phases=states_leave,
            is_moved_by_phase=weights_leave or states_leave,
        ),
    )


def _critic(source: RunContext, devices: int) -> Training:
    shape = source.models.critic or source.models.policy
    if _is_megatron(source):
        return _megatron(source, shape, devices, is_critic=True)
    return _fsdp(source, shape, devices, is_critic=True)


class VerlPlanning:
    """How the planner sees a run of verl."""

    def job(self, source: RunContext) -> Job:
        """See TrainerPlanning."""
        return _job(source)

    def spaces(self, spec: RunSpec, shape: ModelShape, fleet: Fleet, size: int) -> Iterator[Space]:
        """See TrainerPlanning."""
        return verl_spaces(spec, shape, fleet, size)

    def budget_devices(self, layout: Layout) -> int:
        """See TrainerPlanning."""
        return layout.context * layout.ulysses

    def engine_changes(self, *, tensor: int, engines: int) -> Changes:  # noqa: ARG002
        """See TrainerPlanning."""
        return {"placement.rollout_tensor_parallel": tensor}

    def more_devices(self, here: Situation) -> Changes | None:
        """See TrainerPlanning."""
        if 2 * here.spec.num_workers > here.fleet.num_devices or here.job.placement != "colocated":
            return None
        per_node = here.now("placement.policy_gpus_per_node")
        if isinstance(per_node, int) and 2 * per_node <= here.fleet.devices_per_node:
            return {"placement.policy_gpus_per_node": 2 * per_node}
        nodes = here.now("placement.policy_nodes")
        return {"placement.policy_nodes": 2 * nodes} if isinstance(nodes, int) else None


PLUGIN: TrainerPlanning = VerlPlanning()
