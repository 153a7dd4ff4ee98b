"""TRL's knobs: one group of processes with DistributedDataParallel or DeepSpeed ZeRO, rollouts on the same devices.

Sources: TRL scripts/*.py (weights are loaded in `dtype`, float32 unless told otherwise), trainer/*_trainer.py
(log-probabilities by a head that streams the vocabulary, kernels/chunked_logprob.py; the reference is a second model,
with an adapter the policy without it; vLLM colocated, with max_num_seqs of a rollout's samples of a process, asleep at
level 2), Transformers' Trainer (autocast over the loaded weights; under DeepSpeed weights in the precision that is
computed in, with float32 masters) and torch's AdamW, whose states have the weights' type.
"""

from collections.abc import Iterator

from jobs.adapters.trl.layouts import trl_spaces
from jobs.adapters.trl.options import PROCESSES
from jobs.adapters.trl.placement import PLUGIN as PLACEMENT
from jobs.adapters.trl.placement import uses_vllm
from jobs.catalog.algorithm import is_in
from jobs.catalog.sentence import Sentence
from jobs.catalog.spec.runspec import RunSpec
from jobs.planner.job import (
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

_NF4_BYTES = 4.5 / 8  # bits of nf4 without nested quantization: 4 + 32/64
_TILE_TOKENS, _TILE_ENTRIES = 4096, 32768
"""Of the logits that the head holds at once (kernels/chunked_logprob.py, trainer/utils.py)."""

_CACHE_WITHOUT_VLLM = 0.1
"""Share of device memory that the cache of Transformers' generation is assumed to fill: it keeps to none."""

_BY_TRANSFORMERS = Sentence("Rollouts by Transformers are estimated as vLLM's, with weights of its own.")


def _job(source: RunContext) -> Job:
    """Return the job of a run of TRL."""
    spec = source.spec
    devices = max(source.group("policy"), 1)
    rows = _rows(source, devices)
    policy = _policy(source, devices, rows)
    frozen = tuple(_frozen_models(source, policy, rows))
    if not source.is_rl:
        return Job(
            algorithm=spec.algorithm,
            fleet=source.fleet,
            policy=policy,
            frozen=frozen,
            scores_mismatches=is_in(spec.algorithm, "labeled"),
            scores_beside_graph=spec.algorithm == "dpo",  # DPOTrainer._compute_loss: the policy passes first
        )
    notes = () if uses_vllm(spec) else (_BY_TRANSFORMERS,)
    return Job(
        algorithm=spec.algorithm,
        fleet=source.fleet,
        policy=policy,
        frozen=frozen,
        engine=_engine(source),
        rollouts=source.rollouts(score=rows),
        placement="colocated",
        notes=notes,
    )


def _rows(source: RunContext, devices: int) -> MicroBatches:
    micro = source.knobs.whole("train.micro_batch_size", 1)
    return source.rows(micro, ranks=devices, is_packed=source.knobs.flag("train.packing"))


def _policy(source: RunContext, devices: int, rows: MicroBatches) -> Training:
    knobs = source.knobs
    stage, precision = knobs.whole("memory.zero_stage"), knobs.text("memory.precision", "bfloat16")
    rank, is_packed = knobs.whole("lora.rank"), knobs.flag("train.packing")
    held = knobs.text("memory.master_precision", "float32")
    is_half = stage > 0 and precision != "float32"
    element = 2.0 if is_half else ELEMENT_BYTES[held]
    method = _method(source, rank)
    base = _NF4_BYTES if method == "qlora" else element
    # PEFT keeps adapters in float32; of a quantized base TRL makes them bfloat16.
    adapter = 2.0 if method == "qlora" and precision != "float32" else 4.0
    trained = element if rank == 0 or is_half else adapter
    kernels: Kernels = "liger" if knobs.flag("kernels.liger") else "eager"
    is_scalar = is_in(source.spec.algorithm, "scalar")  # of a pair it takes both responses as samples of their own
    is_pairs = is_in(source.spec.algorithm, "pairs") and not is_scalar
    return Training(
        model=source.models.policy,
        layout=Layout(num_devices=devices, shards=stage),
        family="deepspeed" if stage else "plain",
        method=method,
        lora_rank=rank,
        lora_targets=split_targets(knobs.text("lora.target_modules", "all-linear")),
        has_adapter_dropout=knobs.number("lora.dropout") > 0,
        weight_bytes=trained,
        base_bytes=base,
        ends_bytes=element if method == "qlora" else 0.0,
        gradient_bytes=trained,
        optimizer=_optimizer(source, is_half=is_half or held == "float32"),
        has_master=stage > 0,
        compute=COMPUTE[precision],
        kernels="compiled" if knobs.flag("kernels.torch_compile") else kernels,
        attention=ATTENTION[knobs.text("kernels.attention", "sdpa")],
        checkpointing="full" if knobs.flag("memory.gradient_checkpointing") else "none",
        head="chunked",
        head_axis="vocabulary",
        head_chunk=_head_chunk(rows, is_pairs=is_pairs),
        objective="scalar" if is_scalar else "pairs" if is_pairs else "lm",
        micro_batch=rows.size * (2 if is_scalar else 1),
        sequence=rows.sequence,
        document=rows.document or (round(source.usual) if is_packed else 0),
        is_padded=not is_packed,
        num_micro_batches=rows.count,
        offload=Offload(activations=knobs.flag("memory.activation_offload")),
    )


def _head_chunk(rows: MicroBatches, *, is_pairs: bool) -> int:
    """Return the entries of the vocabulary for all tokens that are as many logits as a tile has."""
    tokens = rows.size * rows.sequence * (2 if is_pairs else 1)
    return max(_TILE_ENTRIES * min(_TILE_TOKENS, tokens) // max(tokens, 1), 1)


def _method(source: RunContext, rank: int) -> Method:
    if rank <= 0:
        return "full"
    return "qlora" if source.knobs.flag("quantization.load_in_4bit") else "lora"


def _optimizer(source: RunContext, *, is_half: bool) -> Optimizer:
    """Return the optimizer; `is_half`: its states are float32, by masters or by the weights' own type."""
    if source.knobs.text("optimizer.kind", "adam") == "adam_8bit":
        return "adam_8bit"
    return "adam" if is_half else "adam_bf16"


def _frozen_models(source: RunContext, policy: Training, rows: MicroBatches) -> Iterator[FrozenModel]:
    models, shards = source.models, 3 if policy.layout.shards == 3 else 0
    layout = Layout(num_devices=policy.layout.num_devices, shards=shards)
    is_pairs = policy.objective == "pairs"
    if policy.method == "full" and (is_in(source.spec.algorithm, "anchored") or source.spec.needs("reference")):
        yield FrozenModel(
            role="reference",
            model=models.reference or models.policy,
            layout=layout,
            weight_bytes=policy.weight_bytes,
            micro_batch=rows.size * (2 if is_pairs else 1),
            sequence=rows.sequence,
        )
    if source.has_reward_model:
        yield FrozenModel(
            role="reward",
            model=models.reward or models.policy,
            layout=layout,
            weight_bytes=4.0,
            has_head=False,
            micro_batch=rows.size,
            sequence=rows.sequence,
        )


def _engine(source: RunContext) -> Engine:
    spec, knobs = source.spec, source.knobs
    has_vllm = uses_vllm(spec)
    tensor = knobs.whole("placement.rollout_tensor_parallel", 1) if has_vllm else 1
    share, sleeps = knobs.number("rollout.gpu_memory_fraction", 0.3), knobs.flag("rollout.sleep")
    knobs.get("rollout.backend")
    ranks = max(source.group("policy"), 1)
    samples = knobs.whole("rollout.prompts_per_step", 1) * knobs.whole("rollout.samples_per_prompt", 1)
    return Engine(
        model=source.models.policy,
        num_engines=PLACEMENT.num_engines(spec),
        tensor=tensor,
        utilization=share if has_vllm else _share_without_vllm(source),
        max_num_seqs=min(max(samples // ranks, 1) * tensor, 1024),
        max_model_len=source.longest,
        is_eager=not has_vllm,
        has_prefix_cache=has_vllm,
        sleep_level=2 if has_vllm and sleeps else 0,
    )


def _share_without_vllm(source: RunContext) -> float:
    """Return the share of device memory for bfloat16 weights and a cache, as an engine would have them."""
    weights = 2 * source.models.policy.parameters / source.fleet.accelerator.usable_bytes
    return min(_CACHE_WITHOUT_VLLM + weights, 0.95)


class TrlPlanning:
    """How the planner sees a run of TRL."""

    def job(self, source: RunContext) -> Job:
        """See TrainerPlanning."""
        return _job(source)

    def spaces(self, spec: RunSpec, shape: ModelShape, fleet: Fleet, size: int) -> Iterator[Space]:
        """See TrainerPlanning."""
        return trl_spaces(spec, shape, fleet, size)

    def budget_devices(self, layout: Layout) -> int:
        """See TrainerPlanning."""
        return layout.context * layout.ulysses

    def engine_changes(self, *, tensor: int, engines: int) -> Changes:  # noqa: ARG002
        """See TrainerPlanning: an engine takes as many processes as it is spread over, and so many there are."""
        return {"placement.rollout_tensor_parallel": tensor}

    def more_devices(self, here: Situation) -> Changes | None:
        """See TrainerPlanning: of one node."""
        devices = here.spec.int_knob(PROCESSES)
        most = min(here.fleet.num_devices, here.fleet.devices_per_node)
        return {PROCESSES: 2 * devices} if 2 * devices <= most else None


PLUGIN: TrainerPlanning = TrlPlanning()
