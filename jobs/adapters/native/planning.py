"""The built-in trainer's knobs: DeepSpeed ZeRO 0 to 3, each role on devices of its own or with the policy's ranks
(jobs/engine).

What it does is read in jobs/engine/roles/trained_model.py and language_model.py: DeepSpeed keeps masters in bfloat16
and in every ZeRO stage above 0, of float32 unless the knob says bfloat16, adds gradients up in float32, and sends them
in the type that is computed with; torch's own fused AdamW, on the host's cores where it is offloaded; attention by
sdpa; logits of counted tokens alone, in pieces (jobs/engine/roles/head.py), or of all tokens where a model scales or
caps them. Of LoRA the adapters alone have gradients, masters and moments, in the types that weights have otherwise.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from jobs.adapters.native.layouts import native_spaces
from jobs.catalog.algorithm import is_in
from jobs.catalog.role import ROLES, trains_adapters
from jobs.catalog.sentence import Sentence
from jobs.catalog.spec.derived import DERIVED
from jobs.catalog.spec.runspec import RunSpec
from jobs.planner.job import Engine, Fleet, FrozenModel, Job, Layout, Method, Offload, Training
from jobs.planner.read.context import MicroBatches, RunContext, split_targets
from jobs.planner.search.axes import Changes
from jobs.planner.search.layout_space import Space
from jobs.planner.search.plan_changes import Situation
from jobs.planner.serving.kv_cache import BLOCK_TOKENS, layer_token_bytes, token_bytes
from jobs.planner.shapes.model_shape import ModelShape
from jobs.planner.trainer import TrainerPlanning

HEAD_CHUNK_ELEMENTS = 1 << 26
"""Logits that the output layer computes at once."""

LOGIT_BYTES = 20.0
"""Of each logit with gradients: in float32 themselves 4, the gradient of the chosen one 4, and three tensors of 4 in
that of their logsumexp (jobs/engine/losses.py). Measured with all logits on an H100: 20.1 (docs/develop/engine.md)."""

ENTROPY_LOGIT_BYTES = 8.0
"""More of each logit where a bonus gives entropies a gradient: softmax and its product with the logits, in float32."""

LISTED_LOGIT_BYTES = 17.0
"""Beside these where a teacher's tokens are compared: the logits once more in float32 4, which tokens are listed 1, and
the gradients of the listed ones 4 and of their logsumexp 8 (jobs/engine/distillation.py). Counted, not measured."""

SAMPLER_ROOM = 64
"""Tokens for which the cache of a rank that draws gets room at a time."""

SCORED_LOGIT_BYTES = 14.0
"""Without gradients: 2, in float32 4, and two tensors of 4 for the entropy. Measured there: 14.06."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Roles:
    """Where the roles of a run are, and in which numbers they work.

    `gives_way`: vLLM shares the devices of the policy's ranks, whose states are on the host while it is awake.
    `ranks_draw`: there is no vLLM. `holds_reference`: the policy's ranks do. `element`: bytes of a weight.
    """

    is_shared: bool
    is_colocated: bool
    gives_way: bool
    ranks_draw: bool
    holds_reference: bool
    element: float
    rows: MicroBatches
    has_padding: bool


def _roles(source: RunContext) -> _Roles:
    spec, knobs, layout = source.spec, source.knobs, source.spec.hardware.layout
    takes_turns = source.is_rl and ROLES["vllm"].share_devices(spec)
    return _Roles(
        is_shared=layout != "split",
        is_colocated=layout == "colocated",
        gives_way=takes_turns and not source.fleet.accelerator.is_host,
        ranks_draw=layout == "colocated" and not takes_turns,
        holds_reference=not ROLES["reference"].num_workers(spec),
        element=2.0 if knobs.text("memory.precision") == "bfloat16" else 4.0,
        rows=_rows(source),
        has_padding=not (knobs.flag("train.packing") or knobs.flag("train.dynamic_batch")),
    )


def _job(source: RunContext) -> Job:
    """Return the job of a run of the built-in trainer."""
    spec, hardware, roles = source.spec, source.spec.hardware, _roles(source)
    policy = _policy(source, roles)
    frozen = _frozen(source, roles, policy)
    if not source.is_rl:
        return Job(
            algorithm=spec.algorithm,
            fleet=source.fleet,
            policy=policy,
            frozen=frozen,
            scores_mismatches=is_in(spec.algorithm, "labeled"),
            placement="split" if any(each.pool != "policy" for each in frozen) else "colocated",
        )
    return Job(
        algorithm=spec.algorithm,
        fleet=source.fleet,
        policy=policy,
        critic=_critic(source, policy) if spec.needs("critic") else None,
        critic_pool="critic" if hardware.layout == "split" else "policy",
        frozen=frozen,
        engine=_engine(source, roles),
        rollouts=replace(
            source.rollouts(score=roles.rows, has_old_logprobs=bool(DERIVED["batch.has_old_pass"](spec))),
            generations=_generations(source),
        ),
        placement="colocated" if roles.is_colocated else "split",
        engine_devices=0 if roles.is_colocated else hardware.rollout_engines * hardware.tensor_parallel_size,
        sync_bucket_bytes=256 << 20,
        sync_transport="broadcast",
        notes=(_COLOCATED,) if roles.ranks_draw else (),
    )


def _policy(source: RunContext, roles: _Roles) -> Training:
    """Return the policy's training, with the objective of its algorithm."""
    spec, knobs, model, rows = source.spec, source.knobs, source.models.policy, roles.rows
    is_half = knobs.text("memory.precision") == "bfloat16"
    has_half_masters = is_half and knobs.text("memory.master_precision") == "bfloat16"
    stage = int(DERIVED["memory.used_zero_stage"](spec))
    policy = Training(
        model=model,
        layout=Layout(num_devices=spec.hardware.policy_ranks, shards=stage),
        family="deepspeed",
        method=_method(source),
        lora_rank=knobs.whole("lora.rank"),
        lora_targets=split_targets(knobs.text("lora.target_modules", "all-linear")),
        has_adapter_dropout=knobs.number("lora.dropout") > 0,
        weight_bytes=roles.element,
        base_bytes=_base_bytes(source, roles.element),
        gradient_bytes=4.0,
        optimizer="adam_bf16" if has_half_masters else "adam",
        has_master=is_half or stage > 0,
        master_bytes=2.0 if has_half_masters else 4.0,
        step_buffer_bytes=_step_buffer_bytes(source, roles.element),
        compute="bf16" if is_half else "fp32",
        attention="sdpa",
        has_grouped_attention=True,
        checkpointing="full" if knobs.flag("memory.gradient_checkpointing") else "none",
        head="chunked" if model.has_plain_head else "unfused",
        head_chunk=max(HEAD_CHUNK_ELEMENTS // model.vocab, 1),
        logit_bytes=LOGIT_BYTES
        + (LISTED_LOGIT_BYTES if spec.needs("teacher") else 0.0)
        + (ENTROPY_LOGIT_BYTES if knobs.number("algorithm.entropy_coefficient", 0.0) else 0.0),
        scored_logit_bytes=SCORED_LOGIT_BYTES,
        reduced_bytes=roles.element,
        micro_batch=rows.size,
        sequence=rows.sequence,
        document=rows.document or (0 if roles.has_padding else round(source.usual)),
        is_padded=roles.has_padding,
        num_micro_batches=rows.count,
        is_saved_beside=bool(spec.knob("checkpoint.async_save")),
        offload=replace(
            _offload(source),
            params_between_phases=roles.gives_way and stage < 3,
            optimizer_between_phases=roles.gives_way,
        ),
    )
    if is_in(spec.algorithm, "pairs"):
        is_by_tokens = knobs.flag("train.dynamic_batch")  # the budget holds both responses
        policy = (
            replace(policy, num_micro_batches=2 * rows.count) if is_by_tokens else replace(policy, objective="pairs")
        )
    if is_in(spec.algorithm, "scalar"):  # that says only that it has no vocabulary; it sees both responses of a pair
        size = rows.size * 2 if policy.objective == "pairs" else rows.size
        policy = replace(policy, objective="scalar", micro_batch=size)
    return policy


def _frozen(source: RunContext, roles: _Roles, policy: Training) -> tuple[FrozenModel, ...]:
    """Return the models that only score: those that the algorithm needs."""
    spec, models, rows = source.spec, source.models, roles.rows
    has_adapters = trains_adapters(spec)
    teacher = FrozenModel(
        role="teacher",
        model=models.teacher or models.policy,
        layout=_held(policy) if roles.is_shared else Layout(),
        weight_bytes=roles.element,
        micro_batch=rows.size,
        sequence=rows.sequence,
        pool="policy" if roles.is_shared else "teacher",
    )
    reference = FrozenModel(
        role="reference",
        model=models.reference or models.policy,
        # With adapters it is the policy without them, divided as it is.
        layout=policy.layout if has_adapters else _held(policy) if roles.holds_reference else Layout(),
        weight_bytes=0.0 if has_adapters else roles.element,
        micro_batch=(source.knobs.whole("train.micro_batch_size", 1) if roles.has_padding else rows.size)
        * (2 if policy.objective == "pairs" else 1),
        sequence=rows.sequence,
        pool="policy" if roles.holds_reference else "reference",
    )
    judge = replace(
        teacher,
        role="reward",
        has_head=False,
        model=models.reward or models.policy,
        pool="policy" if roles.is_shared else "reward",
    )
    return tuple(each for each in (reference, teacher, judge) if spec.needs(each.role))


def _engine(source: RunContext, roles: _Roles) -> Engine:
    """Return what draws: vLLM, or the policy's ranks themselves."""
    spec, knobs, hardware = source.spec, source.knobs, source.spec.hardware
    ranks_draw = roles.ranks_draw
    return Engine(
        model=source.models.policy,
        name="trainer" if ranks_draw else "vllm",
        num_engines=hardware.policy_ranks if ranks_draw else ROLES["vllm"].num_workers(spec),
        tensor=1 if ranks_draw else hardware.tensor_parallel_size,
        utilization=knobs.number("rollout.gpu_memory_fraction", 0.6),
        weight_bytes=roles.element,
        kv_bytes=roles.element,
        max_num_seqs=_drawn_at_once(source) if ranks_draw else knobs.whole("rollout.max_num_seqs"),
        max_model_len=source.longest,
        is_eager=ranks_draw or knobs.flag("rollout.enforce_eager"),
        has_prefix_cache=knobs.flag("rollout.enable_prefix_caching"),
        max_batched_tokens=_prompt_tokens(source) if ranks_draw else 0,
        kv_cache_bytes=_sampler_cache_bytes(source, roles.element) if ranks_draw else _engine_cache_bytes(source),
        # vLLM beside the ranks has weights of its own while it is awake; between rollouts a sampler in the ranks holds
        # nothing
        sleep_level=2 if roles.gives_way else 1 if ranks_draw else 0,
        shares_weights=ranks_draw,
    )


def _method(source: RunContext) -> Method:
    """Return what is trained, beside which base; experts are not packed (jobs/engine/roles/four_bit.py)."""
    if not trains_adapters(source.spec):
        return "full"
    is_packed = source.knobs.flag("quantization.load_in_4bit") and not source.models.policy.experts
    return "qlora" if is_packed else "lora"


def _base_bytes(source: RunContext, element: float) -> float:
    """Return bytes of a frozen weight: packed, 4 bits and the scale of its block of 64, in fp32; or in 8 bits, with one
    in fp32 for 256 of them."""
    if _method(source) != "qlora":
        return element
    return 0.5 + (1 / 64 + 4 / 64 / 256 if source.knobs.flag("quantization.double_quantization") else 4 / 64)


def _held(policy: Training) -> Layout:
    """Return how the policy's ranks hold a frozen model: each all of it."""
    return Layout(num_devices=policy.layout.num_devices)


def _generations(source: RunContext) -> int:
    """Return how often groups may be drawn in a step."""
    knobs = source.knobs
    is_drawn_again = is_in(source.spec.algorithm, "grouped") and knobs.flag("algorithm.dynamic_sampling")
    return knobs.whole("algorithm.dynamic_sampling_generations", 1) if is_drawn_again else 1


def _critic(source: RunContext, policy: Training) -> Training:
    """Return the critic's training: as the policy's, with a ZeRO stage of its own, and one number for each token where
    the policy has a vocabulary."""
    return replace(
        policy,
        model=source.models.critic or source.models.policy,
        layout=replace(policy.layout, shards=int(DERIVED["memory.used_critic_zero_stage"](source.spec))),
        has_master=policy.compute == "bf16" or int(DERIVED["memory.used_critic_zero_stage"](source.spec)) > 0,
        objective="scalar",
    )


def _rows(source: RunContext) -> MicroBatches:
    """Return a rank's micro-batches. By a budget of tokens samples of like length come together, packed or not: what is
    padded then is left out."""
    knobs, ranks = source.knobs, source.spec.hardware.policy_ranks
    if knobs.flag("train.dynamic_batch"):
        return source.packed(knobs.whole("train.max_tokens_per_gpu", 16384), ranks=ranks)
    return source.rows(knobs.whole("train.micro_batch_size", 1), ranks=ranks, is_packed=knobs.flag("train.packing"))


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


def _engine_cache_bytes(source: RunContext) -> int:
    """Return the cache that vLLM is told to make: on CPU as the knob says; 0: as its share of memory allows."""
    return source.knobs.whole("rollout.kv_cache_mib") << 20 if source.spec.hardware.device == "cpu" else 0


def _drawn_at_once(source: RunContext) -> int:
    """Return the samples that a rank which draws has under way: those of its step, or as many as the knob lets it."""
    knobs = source.knobs
    samples = knobs.whole("rollout.prompts_per_step", 1) * knobs.whole("rollout.samples_per_prompt", 1)
    per_rank = -(-samples // source.spec.hardware.policy_ranks)
    return min(knobs.whole("rollout.max_num_seqs") or per_rank, per_rank)


def _prompt_tokens(source: RunContext) -> int:
    """Return the tokens of the prompts that a rank which draws reads at once: each prompt once for all its samples."""
    knobs = source.knobs
    prompts = -(-_drawn_at_once(source) // knobs.whole("rollout.samples_per_prompt", 1))
    return prompts * knobs.whole("rollout.max_prompt_tokens", 1)


def _sampler_cache_bytes(source: RunContext, element: float) -> int:
    """Return keys and values that a rank which draws holds (jobs/engine/roles/decoding.py): of all samples under way,
    as long as the longest may get, with room for further tokens; and those of one layer again while they are copied to
    where there is more room."""
    model = source.models.policy
    tokens = _drawn_at_once(source) * -(-(source.longest + SAMPLER_ROOM) // BLOCK_TOKENS) * BLOCK_TOKENS
    return tokens * (
        token_bytes(model.layers, 1, element) + max(layer_token_bytes(x, 1, element) for x in model.layers)
    )


_COLOCATED = Sentence(
    "In the colocated layout the ranks draw themselves: each token takes the time that was measured on an H100, "
    "whatever the number of samples."
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
