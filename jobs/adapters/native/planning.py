"""The built-in trainer's knobs: DeepSpeed ZeRO 0 to 3, each role on devices of its own (jobs/engine).

What it does is read in jobs/engine/roles/trained_model.py and language_model.py: DeepSpeed keeps masters in bfloat16
and in every ZeRO stage above 0, of float32 unless the knob says bfloat16, and adds gradients up in float32; torch's own
fused AdamW, on the host's cores where it is offloaded; attention by sdpa;
logits of counted tokens alone, in pieces (jobs/engine/roles/head.py).
"""

from collections.abc import Iterator

from jobs.adapters.native.layouts import native_spaces
from jobs.catalog.sentence import Sentence
from jobs.catalog.spec.derived import DERIVED
from jobs.catalog.spec.runspec import RunSpec
from jobs.planner.job import Engine, Fleet, FrozenModel, Job, Layout, Offload, Training
from jobs.planner.read.context import RunContext
from jobs.planner.search.axes import Changes
from jobs.planner.search.layout_space import Space
from jobs.planner.search.plan_changes import Situation
from jobs.planner.shapes.model_shape import ModelShape
from jobs.planner.trainer import TrainerPlanning

HEAD_CHUNK_ELEMENTS = 1 << 26
"""Logits that the output layer computes at once."""


def _job(source: RunContext) -> Job:
    """Return the job of a run of the built-in trainer."""
    spec, knobs, hardware = source.spec, source.knobs, source.spec.hardware
    is_half = knobs.text("memory.precision") == "bfloat16"
    is_shared, is_colocated = hardware.layout != "split", hardware.layout == "colocated"
    stage = int(DERIVED["memory.used_zero_stage"](spec))
    element = 2.0 if is_half else 4.0
    has_half_masters = is_half and knobs.text("memory.master_precision") == "bfloat16"
    rows = source.rows(knobs.whole("train.micro_batch_size", 1), ranks=hardware.policy_ranks)
    policy = Training(
        model=source.models.policy,
        layout=Layout(num_devices=hardware.policy_ranks, shards=stage),
        family="deepspeed",
        weight_bytes=element,
        gradient_bytes=4.0,
        optimizer="adam_bf16" if has_half_masters else "adam",
        has_master=is_half or stage > 0,
        master_bytes=2.0 if has_half_masters else 4.0,
        step_buffer_bytes=_step_buffer_bytes(source, element),
        compute="bf16" if is_half else "fp32",
        attention="sdpa",
        checkpointing="full" if knobs.flag("memory.gradient_checkpointing") else "none",
        head="chunked",
        head_chunk=max(HEAD_CHUNK_ELEMENTS // source.models.policy.vocab, 1),
        micro_batch=rows.size,
        sequence=rows.sequence,
        is_padded=True,
        num_micro_batches=rows.count,
        is_saved_beside=bool(spec.knob("checkpoint.async_save")),
        offload=_offload(source),
    )
    if not source.is_rl:
        return Job(algorithm=spec.algorithm, fleet=source.fleet, policy=policy)
    engine = Engine(
        model=source.models.policy,
        num_engines=hardware.policy_ranks if is_colocated else hardware.rollout_engines,
        tensor=1 if is_colocated else hardware.tensor_parallel_size,
        utilization=knobs.number("rollout.gpu_memory_fraction", 0.6),
        weight_bytes=element,
        kv_bytes=element,
        max_num_seqs=knobs.whole("rollout.max_num_seqs"),
        max_model_len=source.longest,
        is_eager=is_colocated or knobs.flag("rollout.enforce_eager"),
        has_prefix_cache=knobs.flag("rollout.enable_prefix_caching"),
        kv_cache_bytes=knobs.whole("rollout.kv_cache_mib") << 20 if hardware.device == "cpu" or is_colocated else 0,
        sleep_level=1 if is_colocated else 0,  # between rollouts a sampler in the ranks holds nothing
        shares_weights=is_colocated,
    )
    reference = FrozenModel(
        role="reference",
        model=source.models.reference or source.models.policy,
        layout=Layout(num_devices=hardware.policy_ranks) if is_shared else Layout(),
        weight_bytes=element,
        micro_batch=knobs.whole("train.micro_batch_size", 1),
        sequence=rows.sequence,
        pool="policy" if is_shared else "reference",
    )
    return Job(
        algorithm=spec.algorithm,
        fleet=source.fleet,
        policy=policy,
        frozen=(reference,) if spec.needs("reference") else (),
        engine=engine,
        rollouts=source.rollouts(score=rows, has_old_logprobs=bool(DERIVED["batch.has_old_pass"](spec))),
        placement="colocated" if is_colocated else "split",
        engine_devices=0 if is_colocated else hardware.rollout_engines * hardware.tensor_parallel_size,
        sync_bucket_bytes=256 << 20,
        notes=(_COLOCATED,) if is_colocated else (),
    )


def _offload(source: RunContext) -> Offload:
    """Return what is kept in host memory; on CPU everything is there anyway, and nothing goes away."""
    if source.spec.hardware.device == "cpu":
        return Offload()
    is_on_host, has_weights = (source.knobs.flag(name) for name in ("memory.adam_offload", "memory.zero_param_offload"))
    return Offload(optimizer=float(is_on_host), params=is_on_host and has_weights)


def _step_buffer_bytes(source: RunContext, element: float) -> float:
    """Return what is kept beside the states, per parameter, on CPU, where the host's memory is the device's own.

    Of an offloaded optimizer gradients of float32 and the weights that it makes of its masters; the copy of a
    checkpoint on its way.
    """
    if source.spec.hardware.device != "cpu":
        return 0.0
    step = 4.0 + element if source.knobs.flag("memory.adam_offload") else 0.0
    half = element == 2.0 and source.knobs.text("memory.master_precision") == "bfloat16"
    return step + (0.0 if not source.spec.knob("checkpoint.async_save") else 6.0 if half else 12.0)


_COLOCATED = Sentence(
    "Rollouts of the colocated layout are timed as those of vLLM without CUDA graphs; on a GPU the ranks draw slower."
)


class NativePlanning:
    """How the planner sees a run of the built-in trainer."""

    def job(self, source: RunContext) -> Job:
        """See TrainerPlanning."""
        return _job(source)

    def spaces(self, spec: RunSpec, shape: ModelShape, fleet: Fleet, size: int) -> Iterator[Space]:
        """See TrainerPlanning."""
        return native_spaces(spec, shape, fleet, size)

    def budget_devices(self, layout: Layout) -> int:
        """See TrainerPlanning."""
        return layout.context * layout.ulysses

    def engine_changes(self, *, tensor: int, engines: int) -> Changes:
        """See TrainerPlanning."""
        return {"hardware.tensor_parallel_size": tensor, "hardware.rollout_engines": engines}

    def more_devices(self, here: Situation) -> Changes | None:
        """See TrainerPlanning."""
        ranks, used = here.spec.hardware.policy_ranks, here.spec.num_workers
        return {"hardware.policy_ranks": 2 * ranks} if used + ranks <= here.fleet.num_devices else None


PLUGIN: TrainerPlanning = NativePlanning()
