"""Memory of a rollout engine on one device, and what its cache holds. vLLM as read in 0.32 and earlier, and SGLang.

vLLM's budget is ceil(total * utilization); the cache gets what is left of it after weights, what libraries took since
the start, and the peak of a forward pass over dummy requests; since 0.20 also after the CUDA graphs it will capture.
What a device's context takes is not in the budget. SGLang's cache gets its share of what was free, less the weights.
"""

import math
from dataclasses import dataclass

from jobs.catalog.accelerator import Accelerator
from jobs.catalog.sentence import Sentence
from jobs.planner.constant import Constants
from jobs.planner.job import Engine
from jobs.planner.result import JobInvalid, PeakMemory, Term
from jobs.planner.serving.engine_weights import matrix_bytes, plain_bytes, weight_bytes
from jobs.planner.serving.image_profile import image_bytes
from jobs.planner.serving.kv_cache import KvCache, sglang_cache, stages, vllm_cache

_GIB = 2**30
NEWEST = (0, 32)
_CHUNKED_FROM = 32_768  # the first engine of vLLM cuts prompts into pieces above this length
_LEAST_POSITIONS = 2048  # assumed where neither engine nor config names a greatest length


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortage:
    """Why an engine does not start: the field to change, and a sentence; `missing`: bytes of a device that it lacks."""

    field: str
    text: str
    missing: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineMemory:
    """Bytes on the device of an engine that holds most, awake and asleep (`memory`, `sleeping`), graphs and context
    included; `budget`: of them, what its knob allows it. `rollout_kv_bytes`: the cache per device. `kv_tokens`: what
    the engine reports that its cache holds. `wake_bytes` must be free when it wakes up. `shortage`: None if it starts.
    """

    memory: PeakMemory
    sleeping: PeakMemory
    budget: int
    rollout_kv_bytes: int
    kv_tokens: int
    cache: KvCache
    max_num_seqs: int
    max_batched_tokens: int
    max_model_len: int
    shortage: Shortage | None

    @property
    def wake_bytes(self) -> int:
        """Bytes that must be free beside a sleeping engine for it to wake up."""
        return max(self.memory.total - self.sleeping.total, 0)


def engine_memory(engine: Engine, accelerator: Accelerator, constants: Constants) -> EngineMemory:
    """Return what an engine takes. Raises: JobInvalid for a value that no engine takes (validate_engine)."""
    validate_engine(engine)
    seqs, batched = scheduler_sizes(engine, accelerator)
    longest = engine.max_model_len or engine.model.max_positions or _LEAST_POSITIONS
    ranks = range(engine.pipeline)
    weights = [weight_bytes(engine, stage) for stage in ranks]
    peaks = [_peak(engine, stage, seqs, batched, constants) for stage in ranks]
    peaks[0] = _with_images(engine, peaks[0], seqs, batched, longest)
    peaks = [_with_compiler(engine, stage, peaks[stage]) for stage in ranks]
    penalties = [_penalty_bytes(engine, stage, seqs) for stage in ranks]
    graphs = _graph_bytes(engine, accelerator, seqs, constants)
    # Where the trainer's process draws, or an engine within it, the context is counted there.
    others = 0 if engine.shares_weights else _non_torch(engine, accelerator, constants)
    context = 0 if engine.shares_weights else round(constants.engine.context_bytes)
    if engine.name == "sglang":
        free = accelerator.usable_bytes - context - others
        budget = math.floor(free * engine.utilization)
        others += round(constants.engine.sglang_load_bytes)
        spare = budget - max(weights) - round(constants.engine.sglang_load_bytes)
        shares = (constants.engine.sglang_window_share, constants.engine.sglang_state_ratio)
        cache = sglang_cache(engine, engine.kv_cache_bytes or spare, *shares)
    else:
        budget = math.ceil(accelerator.usable_bytes * engine.utilization)
        counted = graphs if _counts_graphs(engine) else 0
        late = penalties if release_of(engine) >= (0, 27) else [0] * engine.pipeline
        left = [budget - weights[i] - sum(peaks[i]) - late[i] - others - counted for i in ranks]
        room = [engine.kv_cache_bytes] * engine.pipeline if engine.kv_cache_bytes else left
        cache = vllm_cache(engine, room, batched_tokens=batched, keeps_two=release_of(engine) >= (0, 24))
        spare = min(room)
    held = max(cache.num_blocks, 0) * cache.block_bytes
    # The stage that holds most besides the cache; all caches are as large as the smallest allows.
    worst = max(ranks, key=lambda i: weights[i] + sum(peaks[i]) + penalties[i])
    transient, logits = peaks[worst]
    awake: dict[Term, int] = {
        "weights": weights[worst],
        "kv_cache": held,
        "activations": transient,
        "logits": logits + penalties[worst],
        "graphs": graphs,
        "overhead": context + others,
    }
    return EngineMemory(
        memory=PeakMemory(terms=awake),
        sleeping=PeakMemory(terms=_asleep(engine, awake, constants)),
        budget=budget,
        rollout_kv_bytes=held,
        kv_tokens=_reported_tokens(engine, cache, longest),
        cache=cache,
        max_num_seqs=seqs,
        max_batched_tokens=batched,
        max_model_len=longest,
        shortage=_shortage(engine, cache, spare, longest, budget=budget, accelerator=accelerator),
    )


def wakes_at_once(engine: Engine) -> bool:
    """Return whether an engine wakes up as a whole, its cache with it, before it gets new weights: vLLM before 0.8.3,
    whose wake_up knows no tags."""
    return engine.name == "vllm" and bool(engine.version) and _numbers(engine) < (0, 8, 3)


def is_first_engine(engine: Engine) -> bool:
    """Return whether this is vLLM's first engine, which schedules between steps in the process that runs them: the
    default before 0.8."""
    return engine.name == "vllm" and release_of(engine) < (0, 8)


def schedules_ahead(engine: Engine) -> bool:
    """Return whether an engine is known to prepare a step while the last one runs: vLLM from 0.14 on (asynchronous
    scheduling by default)."""
    return engine.name == "vllm" and bool(engine.version) and _numbers(engine) >= (0, 14)


def reserves_memory(engine: Engine) -> bool:
    """Return whether an engine takes its whole budget when it starts, as vLLM does in a process of its own."""
    return engine.name == "vllm" and not engine.shares_weights


def starts_beside(memory: EngineMemory, accelerator: Accelerator, resident_bytes: int) -> bool:
    """Return whether an engine finds its budget free beside what others hold of the device, as vLLM demands it."""
    return accelerator.usable_bytes - resident_bytes >= memory.budget


def scheduler_sizes(engine: Engine, accelerator: Accelerator) -> tuple[int, int]:
    """Return the greatest number of sequences and of tokens of one step; vLLM's own defaults (as a server) where 0."""
    total, is_a100 = accelerator.usable_bytes, "a100" in accelerator.id.lower()
    if engine.name == "sglang":
        sizes = ((20, 2048), (35, 2048), (60, 4096), (160, 8192))
        tokens = next((tokens for gib, tokens in sizes if total < gib * _GIB), 16384)
        return engine.max_num_seqs or 2048, engine.max_batched_tokens or tokens
    longest = engine.max_model_len or engine.model.max_positions or _LEAST_POSITIONS
    if is_first_engine(engine):  # prompts whole, unless they may be longer than 32,768
        seqs, tokens = 256, 2048 if longest > _CHUNKED_FROM else max(longest, 2048)
    elif total >= 160 * _GIB:
        seqs, tokens = 1024, 16384
    elif total >= 70 * _GIB and not is_a100:
        seqs, tokens = 1024, 8192
    else:
        seqs, tokens = 256, 2048
    tokens = engine.max_batched_tokens or tokens
    return engine.max_num_seqs or min(seqs, tokens), tokens


def capture_sizes(engine: Engine, accelerator: Accelerator, max_num_seqs: int) -> tuple[int, ...]:
    """Return the batch sizes for which an engine captures CUDA graphs; none if it runs eagerly, as a trainer's own
    code does."""
    if engine.is_eager or engine.name == "trainer":
        return ()
    if engine.name == "sglang":
        gib = accelerator.usable_bytes / _GIB
        largest = next((most for below, most in ((20, 8), (35, 24), (60, 32), (160, 256)) if gib < below), 512)
    else:
        # Blackwell for data centers is told by its memory: no other card of NVIDIA has as much.
        is_largest = accelerator.vendor == "nvidia" and accelerator.usable_bytes >= 160 * _GIB
        largest = 1024 if is_largest else 512
    most = min(2 * max_num_seqs, largest)
    sizes = [size for size in (1, 2, 4) if size <= most]
    return (*sizes, *range(8, min(most + 1, 256), 8), *range(256, most + 1, 16))


def validate_engine(engine: Engine) -> None:
    """Raise JobInvalid, naming the field, for what no engine takes."""
    share = engine.utilization
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1:
        raise _invalid("utilization", share, Sentence("a fraction of the memory, above 0 and at most 1"))
    for name in ("tensor", "pipeline", "expert", "num_engines"):
        _check_integer(name, getattr(engine, name), low=1)
    for name in ("max_num_seqs", "max_batched_tokens", "max_model_len", "kv_cache_bytes", "block_tokens"):
        _check_integer(name, getattr(engine, name), low=0)
    model = engine.model
    if model.heads % engine.tensor:
        raise _invalid(
            "tensor",
            engine.tensor,
            Sentence("a number that divides the model's {heads} attention heads", heads=model.heads),
        )
    if model.attention_kind != "mla" and model.kv_heads % engine.tensor and engine.tensor % model.kv_heads:
        raise _invalid(
            "tensor",
            engine.tensor,
            Sentence("a divisor or a multiple of the model's {kv_heads} key heads", kv_heads=model.kv_heads),
        )
    if engine.pipeline > model.num_layers:
        raise _invalid(
            "pipeline",
            engine.pipeline,
            Sentence("at most the model's {num_layers} layers", num_layers=model.num_layers),
        )
    if engine.expert > 1 and (not model.experts or model.experts < engine.expert):
        raise _invalid(
            "expert", engine.expert, Sentence("1, or at most the model's {experts} experts", experts=model.experts)
        )
    if engine.images_per_prompt is not None:
        _check_integer("images_per_prompt", engine.images_per_prompt, low=0)
    for name in ("kv_bytes", "weight_bytes"):
        value = getattr(engine, name)
        if value is not None and not (isinstance(value, int | float) and 0.1 <= value <= 8):
            raise _invalid(name, value, Sentence("bytes per element, from 0.1 to 8"))
    if engine.sleep_level not in (0, 1, 2):
        raise _invalid("sleep_level", engine.sleep_level, Sentence("0, 1 or 2"))
    release_of(engine)


def _peak(engine: Engine, stage: int, seqs: int, batched: int, constants: Constants) -> tuple[int, int]:
    """Return the peak of a forward over dummy requests: (activations and what kernels keep, logits and sampling)."""
    model = engine.model
    if engine.name == "sglang":
        return 0, 0  # lives in what its share of memory leaves
    workspace = max(_expert_workspace(engine, i, batched) for i in stages(engine)[stage])
    width = model.mlp_width or model.shared_width
    passing = 0 if _keeps_expert_workspace(engine) else workspace
    workspace -= passing
    layer = passing + 2 * batched * (3 * width / engine.tensor + 3 * model.hidden) * constants.engine.forward_factor
    if stage < engine.pipeline - 1:
        return round(workspace + layer), 0
    per_entry = constants.engine.sampler_bytes
    if has_second_runner(engine):
        per_entry = _second_sampler_bytes(engine, constants)
    elif _sorts(engine, seqs):
        per_entry = constants.engine.sampler_bytes_sorting
    logits = per_entry * seqs * model.vocab
    hidden = 2 * batched * model.hidden
    if layer > logits + hidden:
        return round(workspace + layer), 0
    return round(workspace + hidden), round(logits)


def _with_images(engine: Engine, decoder: tuple[int, int], seqs: int, batched: int, longest: int) -> tuple[int, int]:
    """Return the peak of the first stage, whose tower sees images before its decoder does: as `_peak` has it."""
    passing, beside = image_bytes(engine, max_num_seqs=seqs, batched_tokens=batched, longest=longest)
    return max((passing, 0), (decoder[0] + beside, decoder[1]), key=sum)


# Architectures by the release from which vLLM's second runner serves them by default, where it does not serve all that
# are like them (vllm/config/vllm.py, DEFAULT_V2_MODEL_RUNNER_ARCHITECTURES).
_RUNNER_FROM = {"qwen3": (0, 22), "llama": (0, 23), "mistral": (0, 23), "deepseek_v2": (0, 24), "qwen2_moe": (0, 24)}
_RUNNER_PLAIN, _RUNNER_DENSE, _RUNNER_ALL = (0, 24), (0, 25), (0, 29)


def has_second_runner(engine: Engine) -> bool:
    """Return whether vLLM's second runner ("Using V2 Model Runner") serves a model: since 0.22 that of some dense ones
    in 16 bits, since 0.24 quantized ones too, since 0.25 any that has neither experts nor states, since 0.29 all."""
    release, model = release_of(engine), engine.model
    if engine.name != "vllm" or release >= _RUNNER_ALL:
        return engine.name == "vllm"
    if release >= _RUNNER_FROM.get(model.model_type, _RUNNER_ALL):
        return release >= _RUNNER_PLAIN or not (model.quantization or engine.weight_bytes)
    has_states = any(layer.state or layer.float_state for layer in model.layers)
    return release >= _RUNNER_DENSE and not model.experts and not has_states


def _counts_graphs(engine: Engine) -> bool:
    """Return whether what graphs will take is taken off the cache: by the first runner since 0.20, by the second since
    0.29 (its profile_cudagraph_memory returned 0 before)."""
    return release_of(engine) >= ((0, 29) if has_second_runner(engine) else (0, 20))


def _second_sampler_bytes(engine: Engine, constants: Constants) -> float:
    """Return bytes of an entry of the logits in the second runner's profile: since 0.28 it draws from them as they are,
    where no request asks for more (`needs_logits_processing`), once more where they are scaled or capped."""
    if release_of(engine) < _DRAWN_PLAIN_FROM:
        return constants.engine.sampler_bytes_second
    return 2.0 if engine.model.has_plain_head else 4.0


_DRAWN_PLAIN_FROM = (0, 28)
_PENALTY_BYTES = 4 + 1 / 8  # of each sequence and entry: how often it was drawn, and whether the prompt has it


def _penalty_bytes(engine: Engine, stage: int, seqs: int) -> int:
    """Return bytes that the second runner's sampler keeps on the last stage for penalties, used or not.

    PenaltiesState makes them after the weights were measured: releases before 0.27 took them off nothing."""
    if not has_second_runner(engine) or stage < engine.pipeline - 1:
        return 0
    return round(_PENALTY_BYTES * seqs * engine.model.vocab)


def _with_compiler(engine: Engine, stage: int, peak: tuple[int, int]) -> tuple[int, int]:
    """Return the peak of a stage beside what the compiler holds when it compiles: as `_peak` has it.

    With torch 2.9 and later vLLM has it time kernels that it joined (benchmark_combo_kernel). What they read is made
    anew for that (torch/_inductor/codegen/triton_combo_kernel.py), the table of embeddings too where tokens are
    embedded within the compiled graph: a model that sees images embeds before. A start that finds what was compiled
    does without.
    """
    sees_images = engine.model.tower and engine.images_per_prompt != 0
    if engine.name != "vllm" or stage or engine.is_eager or engine.is_compiled or sees_images:
        return peak
    if release_of(engine) < (0, 12):
        return peak
    table = round(engine.model.vocab * engine.model.hidden * plain_bytes(engine) / engine.tensor)
    return max((table, 0), peak, key=sum)


_SORTED = 8  # sequences below which a release that has a kernel of its own sorts nevertheless


def _sorts(engine: Engine, seqs: int) -> bool:
    """Return whether logits of so many sequences are sorted to find top-k and top-p: by releases before 0.17 unless
    they take FlashInfer's kernels, which are no part of their own, and since then, without FlashInfer's, of a few
    sequences alone (vLLM's pull request 33538: a kernel in Triton)."""
    if release_of(engine) < (0, 17):
        return engine.sampler != "flashinfer"
    return engine.sampler == "sort" and seqs < _SORTED


def _expert_workspace(engine: Engine, index: int, batched: int) -> float:
    """Return bytes of the two buffers that fused experts keep: tokens * k rows, as wide as the widest of in and out."""
    model = engine.model
    if not model.layers[index].is_moe:
        return 0
    width = model.expert_width / (1 if engine.expert > 1 else engine.tensor)
    rows = batched * model.experts_per_token
    return 2 * rows * (max(width, model.hidden) + max(2 * width, model.hidden))


def _keeps_expert_workspace(engine: Engine) -> bool:
    """Return whether the buffers of fused experts outlive a layer, so that they are there when tokens are drawn.

    Modular kernels keep theirs; experts of 16 bits have them since 0.14 (pull request 31052), and took two tensors a
    layer before, which were gone with it (fused_moe.py, fused_experts_impl). Quantized ones had them earlier.
    """
    return release_of(engine) >= (0, 14) or matrix_bytes(engine) < 2


def _non_torch(engine: Engine, accelerator: Accelerator, constants: Constants) -> int:
    """Return bytes outside of torch. What communicators keep, they keep for direct links: over PCIe they open channels
    of a few MB, through the host's memory where devices cannot read one another's (NCCL's transport over shared
    memory), and symmetric memory and multicast are of no use there."""
    is_linked = accelerator.has_peer_to_peer and accelerator.link != "pcie"
    if engine.name == "sglang":
        is_group = engine.tensor * engine.pipeline > 1
        return round(constants.engine.sglang_nccl_bytes) if is_group and is_linked else 0
    if max(engine.tensor, engine.expert) > 1 and is_linked:
        early = release_of(engine) < (0, 12)
        return round(constants.engine.non_torch_bytes_group_early if early else constants.engine.non_torch_bytes_group)
    return round(
        constants.engine.non_torch_bytes_pipeline if engine.pipeline > 1 else constants.engine.non_torch_bytes_single
    )


def _graph_bytes(engine: Engine, accelerator: Accelerator, seqs: int, constants: Constants) -> int:
    each = constants.engine.graph_bytes_second if has_second_runner(engine) else constants.engine.graph_bytes
    return round(each * len(capture_sizes(engine, accelerator, seqs)) * _most_layers(engine))


def _asleep(engine: Engine, awake: dict[Term, int], constants: Constants) -> dict[Term, int]:
    if not engine.sleep_level:
        return dict(awake)
    return {"graphs": round(awake["graphs"] * constants.engine.asleep_share_graphs), "overhead": awake["overhead"]}


def _reported_tokens(engine: Engine, cache: KvCache, longest: int) -> int:
    if engine.name == "sglang" or _reports_blocks(engine) or cache.num_blocks <= 0:
        return max(cache.num_blocks, 0) // len(cache.groups) * cache.block_tokens
    return int(cache.num_blocks / cache.sequence_blocks(longest) * longest)


def _reports_blocks(engine: Engine) -> bool:
    """Return whether a release reports its blocks' tokens, as vLLM did up to 0.20.0: see kv_cache."""
    return bool(engine.version) and _numbers(engine) < (0, 20, 1)


def _shortage(
    engine: Engine, cache: KvCache, spare: int, longest: int, *, budget: int, accelerator: Accelerator
) -> Shortage | None:
    if spare <= 0 or cache.num_blocks <= 0:
        text = Sentence(
            "engine.utilization {utilization:g} gives the engine {budget} of {label}; weights and a "
            "forward pass need {needed}. Raise it, or use more devices per engine.",
            utilization=engine.utilization,
            budget=_gib(budget),
            label=accelerator.label,
            needed=_gib(budget - spare),
        )
        return Shortage(field="engine.utilization", text=text, missing=cache.sequence_bytes(longest) - spare)
    if cache.sequence_blocks(longest) <= cache.num_blocks:
        return None
    fits = cache.longest_sequence()
    text = Sentence(
        "engine.max_model_len {longest} needs {needed} of cache; {spare} is there, which holds"
        " {fits} tokens. Use at most {fits}, or raise engine.utilization.",
        longest=longest,
        needed=_gib(cache.sequence_bytes(longest)),
        spare=_gib(spare),
        fits=fits,
    )
    return Shortage(field="engine.max_model_len", text=text, missing=cache.sequence_bytes(longest) - spare)


def _gib(size: float) -> str:
    return f"{size / _GIB:.2f} GiB"


def _most_layers(engine: Engine) -> int:
    return max(len(stage) for stage in stages(engine))


def release_of(engine: Engine) -> tuple[int, ...]:
    """Return the version of vLLM as major and minor number; "" is the newest known."""
    if not engine.version or engine.name == "sglang":
        return NEWEST
    return (*_numbers(engine), 0)[:2]


def _numbers(engine: Engine) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in engine.version.removeprefix("v").split(".")[:3])
    except ValueError:
        raise _invalid("version", engine.version, Sentence("numbers and dots, such as 0.19.1")) from None


def _check_integer(name: str, value: object, *, low: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= 10**15:
        raise _invalid(name, value, Sentence("a whole number from {low}", low=low))


def _invalid(name: str, value: object, allowed: str) -> JobInvalid:
    return JobInvalid(
        f"engine.{name}",
        Sentence("{value!r} is not allowed for engine.{name}. Use {allowed}.", value=value, name=name, allowed=allowed),
    )
