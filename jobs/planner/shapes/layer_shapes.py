"""Elements of one decoder layer, counted from the sizes that a config gives."""

from collections.abc import Sequence
from dataclasses import dataclass

from jobs.catalog.sentence import Sentence
from jobs.planner.shapes.config_values import LAYER_LIMIT, ConfigValues
from jobs.planner.shapes.families import Family, FamilyProperty

_KINDS = ("full_attention", "sliding_attention", "chunked_attention", "linear_attention")


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerShape:
    """One decoder layer. Parameter counts by what happens to them when a model is divided.

    `attention`: elements that tensor parallelism divides; `mlp`: of a dense or shared MLP, divided too;
    `experts`: of all routed experts together (0 if dense), divided by expert and expert-tensor parallelism;
    `replicated`: norms, routers, and what else every tensor rank holds whole; `replicated_linear` are those of them
    that are matrices of linear layers (the down-projections of MLA). `window`: tokens that attention sees, 0 for all.
    `largest_matrix`: elements of the largest single matrix. `has_cache` is False for linear attention, which keeps a
    state of `state` elements per sequence instead of keys and values per token. `norms` of the hidden state, each of
    `hidden` elements (twice that with biases).
    """

    attention: int
    mlp: int
    experts: int
    replicated: int
    window: int
    is_moe: bool
    largest_matrix: int
    replicated_linear: int = 0
    has_cache: bool = True
    state: int = 0
    norms: int = 2

    @property
    def total(self) -> int:
        """All elements of the layer."""
        return self.attention + self.mlp + self.experts + self.replicated


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """Sizes of attention. Of MLA `head_size` is that of queries and keys, nope + rope; ranks are 0 without it."""

    heads: int
    kv_heads: int
    head_size: int
    query_rank: int = 0
    kv_rank: int = 0
    nope_size: int = 0
    rope_size: int = 0
    value_size: int = 0
    divided: int = 0
    replicated: int = 0
    replicated_linear: int = 0
    largest: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixture:
    """Sizes of the experts; `shared_width` of all shared experts together; `layers`: which decoder layers have them."""

    experts: int
    per_token: int
    width: int
    num_shared: int
    shared_width: int
    layers: tuple[bool, ...]


def is_set(config: ConfigValues, flag: FamilyProperty) -> bool:
    """Return what a flag of the family says for this config. Raises: ShapeUnreadable."""
    return config.flag(flag.key, flag.default) if flag.key else flag.default


def read_attention(config: ConfigValues, family: Family, hidden: int) -> Attention:
    """Return the sizes and elements of attention with keys and values per head. Raises: ShapeUnreadable."""
    heads = config.count("num_attention_heads", "n_head", limit=hidden)
    kv_heads = _kv_heads(config, heads)
    size = _head_size(config, hidden, heads)
    query, kv = heads * size, kv_heads * size
    inner = query * (2 if family.has_output_gate else 1)
    divided = hidden * inner + 2 * hidden * kv + query * hidden
    divided += (inner + 2 * kv) * is_set(config, family.qkv_bias) + heads * family.has_sinks
    replicated = hidden * is_set(config, family.output_bias)
    if is_set(config, family.qk_norm_flag):
        replicated += {"": 0, "head": 2 * size, "projection": query + kv}[family.qk_norm]
    if config.flag("qk_layernorm", False):  # layer norms per head: one for all heads in Phi, one each in StableLM
        replicated += 4 * size if family.norms == 1 else (heads + kv_heads) * size
    return Attention(
        heads=heads,
        kv_heads=kv_heads,
        head_size=size,
        divided=divided,
        replicated=replicated,
        largest=hidden * max(inner, kv),
    )


def read_latent_attention(config: ConfigValues, hidden: int) -> Attention:
    """Return the sizes and elements of multi-head latent attention. Raises: ShapeUnreadable.

    `q_lora_rank` must be there; null means that queries are not compressed.
    """
    heads = config.count("num_attention_heads", limit=hidden)
    nope = config.count("qk_nope_head_dim")
    rope = config.count("qk_rope_head_dim")
    value = config.count("v_head_dim")
    kv_rank = config.count("kv_lora_rank")
    if "q_lora_rank" not in config.values:
        raise config.refusal("q_lora_rank", Sentence("is missing. It must be a whole number, or null for none."))
    query_rank = config.optional_count("q_lora_rank") or 0
    bias = config.flag("attention_bias", False)
    query = heads * (nope + rope)
    down = hidden * query_rank + hidden * (kv_rank + rope)
    norms = query_rank + kv_rank
    biases = (query_rank + kv_rank + rope + hidden) * bias
    up = (query_rank or hidden) * query + kv_rank * heads * (nope + value)
    return Attention(
        heads=heads,
        kv_heads=heads,
        head_size=nope + rope,
        query_rank=query_rank,
        kv_rank=kv_rank,
        nope_size=nope,
        rope_size=rope,
        value_size=value,
        divided=up + heads * value * hidden,
        replicated=down + norms + biases,
        replicated_linear=down,
        largest=max((query_rank or hidden) * query, kv_rank * heads * (nope + value), heads * value * hidden),
    )


def _kv_heads(config: ConfigValues, heads: int) -> int:
    if config.values.get("model_type") == "falcon" and not config.flag("new_decoder_architecture", False):
        # Its old decoder has one head of keys and values for all queries or one for each, whatever else is said.
        return 1 if config.flag("multi_query", True) else heads
    keys = ("num_key_value_heads", "num_kv_heads")
    kv_heads = config.optional_count(*keys, limit=heads)
    if kv_heads is None:
        return heads
    if heads % kv_heads:
        problem = Sentence(
            "is {found}. The {heads} attention heads must be a multiple of it.", found=kv_heads, heads=heads
        )
        raise config.refusal(config.first(*keys), problem)
    return kv_heads


def _head_size(config: ConfigValues, hidden: int, heads: int) -> int:
    size = config.optional_count("head_dim")
    if size is not None:
        return size
    if hidden % heads:
        problem = Sentence(
            "is {hidden}. Without head_dim it must be a multiple of the {heads} attention heads.",
            hidden=hidden,
            heads=heads,
        )
        raise config.refusal(config.first("hidden_size", "n_embd"), problem)
    return hidden // heads


def linear_attention(config: ConfigValues, hidden: int) -> Attention:
    """Return the elements of a gated delta-rule layer (Qwen3.5); `value_size` is its state per sequence.

    Raises: ShapeUnreadable.
    """
    key_heads, key_size = config.count("linear_num_key_heads"), config.count("linear_key_head_dim")
    value_heads, value_size = config.count("linear_num_value_heads"), config.count("linear_value_head_dim")
    kernel = config.count("linear_conv_kernel_dim")
    key, value = key_heads * key_size, value_heads * value_size
    channels = 2 * key + value
    divided = hidden * (channels + value + 2 * value_heads) + channels * kernel + value * hidden + 2 * value_heads
    return Attention(
        heads=value_heads,
        kv_heads=key_heads,
        head_size=key_size,
        value_size=value_heads * key_size * value_size + channels * (kernel - 1),
        divided=divided,
        replicated=value_size,
        largest=hidden * channels,
    )


def read_mixture(config: ConfigValues, family: Family, num_layers: int) -> Mixture | None:
    """Return the sizes of the experts, None for a model without. Raises: ShapeUnreadable."""
    names = ("num_experts", "num_local_experts", "n_routed_experts")
    experts = config.optional_count(*names, limit=100_000)
    if experts is None and not family.mixture:
        return None
    if experts is None:
        raise config.refusal(
            names[0],
            Sentence(
                "is missing (also called {second}, {third}). It must be a whole number.",
                second=names[1],
                third=names[2],
            ),
        )
    chosen = ("num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_top_k")
    per_token = config.count(*chosen, limit=100_000)
    if per_token > experts:
        raise config.refusal(
            config.first(*chosen),
            Sentence(
                "is {per_token}. It cannot be more than the {experts} experts.", per_token=per_token, experts=experts
            ),
        )
    width = config.count("moe_intermediate_size", "expert_intermediate_size", "intermediate_size")
    num_shared = config.optional_count("n_shared_experts", "num_shared_experts", low=0, limit=100_000) or 0
    shared_width = config.optional_count("shared_expert_intermediate_size", "shared_intermediate_size", low=0)
    if family.width_key == "intermediate_size_mlp":  # Llama 4 has one shared expert, and no key for it
        num_shared = 1
    if shared_width is None:
        shared_width = num_shared * width
    elif shared_width:
        num_shared = num_shared or 1
    return Mixture(
        experts=experts,
        per_token=per_token,
        width=width,
        num_shared=num_shared,
        shared_width=shared_width,
        layers=_expert_layers(config, num_layers),
    )


def _expert_layers(config: ConfigValues, num_layers: int) -> tuple[bool, ...]:
    first = config.optional_count("first_k_dense_replace", low=0, limit=LAYER_LIMIT) or 0
    dense = set(config.items("mlp_only_layers", int) or ())
    chosen = config.items("moe_layers", int)
    keys = ("decoder_sparse_step", "interleave_moe_layer_step")
    step = config.optional_count(*keys, limit=LAYER_LIMIT) or 1
    frequency = config.values.get("moe_layer_freq")
    listed = config.items("moe_layer_freq", int) if isinstance(frequency, list | tuple) else None
    if listed is not None:
        if len(listed) != num_layers or set(listed) - {0, 1}:
            raise config.refusal(
                "moe_layer_freq",
                Sentence("must be a number or a list of {num_layers} zeros and ones.", num_layers=num_layers),
            )
        return tuple(value == 1 for value in listed)
    every = config.optional_count("moe_layer_freq", limit=LAYER_LIMIT) or 1
    if chosen is not None:
        return tuple(index in set(chosen) for index in range(num_layers))
    return tuple(
        index >= first and index % every == 0 and (index + 1) % step == 0 and index not in dense
        for index in range(num_layers)
    )


def read_windows(config: ConfigValues, family: Family, num_layers: int) -> tuple[tuple[int, bool], ...]:
    """Return per layer the window, 0 for all tokens, and whether its attention is linear. Raises: ShapeUnreadable."""
    kinds = config.items("layer_types", str) or _kinds(config, family, num_layers)
    if len(kinds) != num_layers:
        raise config.refusal(
            "layer_types",
            Sentence(
                "has {count} items. It must have one for each of {num_layers} layers.",
                count=len(kinds),
                num_layers=num_layers,
            ),
        )
    for kind in kinds:
        if kind not in _KINDS:
            raise config.refusal(
                "layer_types",
                Sentence("has {kind}. Known are {known}.", kind=config.shown(kind), known=", ".join(_KINDS)),
            )
    sizes = {"full_attention": 0, "linear_attention": 0}
    if "sliding_attention" in kinds:
        sizes["sliding_attention"] = config.count("sliding_window")
    if "chunked_attention" in kinds:
        sizes["chunked_attention"] = config.count("attention_chunk_size")
    return tuple((sizes[kind], kind == "linear_attention") for kind in kinds)


def _kinds(config: ConfigValues, family: Family, num_layers: int) -> Sequence[str]:
    full, sliding = "full_attention", "sliding_attention"
    interval = config.optional_count("full_attention_interval", limit=LAYER_LIMIT)
    if config.has("linear_num_value_heads"):
        every = interval or 4
        return [full if (index + 1) % every == 0 else "linear_attention" for index in range(num_layers)]
    if family.windows == "chunked":
        if config.optional_count("attention_chunk_size") is None:
            return [full] * num_layers
        has_rope = config.items("no_rope_layers", int) or [
            int((index + 1) % (config.optional_count("no_rope_layer_interval", limit=LAYER_LIMIT) or 4) != 0)
            for index in range(num_layers)
        ]
        return ["chunked_attention" if rope else full for rope in has_rope]
    if family.windows == "none" or not config.optional_count("sliding_window", low=0):
        return [full] * num_layers
    if family.windows == "alternate":
        return [full if index % 2 else sliding for index in range(num_layers)]
    if family.windows == "pattern":
        every = config.count("sliding_window_pattern", limit=LAYER_LIMIT)
        return [sliding if (index + 1) % every else full for index in range(num_layers)]
    if family.windows == "all":
        return [sliding] * num_layers
    if not config.flag("use_sliding_window", False):
        return [full] * num_layers
    above = config.optional_count("max_window_layers", low=0, limit=LAYER_LIMIT)
    start = 28 if above is None else above
    return [sliding if index >= start else full for index in range(num_layers)]


def layer(
    config: ConfigValues,
    family: Family,
    hidden: int,
    attention: Attention,
    *,
    width: int,
    mixture: Mixture | None,
    window: int,
    is_linear: bool,
) -> LayerShape:
    """Return one layer: dense of MLP `width` where `mixture` is None. Raises: ShapeUnreadable."""
    matrices = 3 if family.is_gated else 2
    norms = _norms(config, family) * hidden * (2 if family.has_layer_norm else 1)
    replicated = attention.replicated + norms
    mlp = experts = 0
    largest = attention.largest
    if mixture is None:
        mlp = matrices * hidden * width
        largest = max(largest, hidden * width)
        if is_set(config, family.mlp_bias):
            mlp += (matrices - 1) * width
            replicated += hidden
    else:
        one = matrices * hidden * mixture.width
        router = hidden * mixture.experts
        if family.has_expert_bias:
            one += (matrices - 1) * mixture.width + hidden
            router += mixture.experts
        experts = mixture.experts * one
        mlp = matrices * hidden * mixture.shared_width
        replicated += router + hidden * family.shared_gate
        largest = max(largest, hidden * mixture.width, hidden * mixture.shared_width, hidden * mixture.experts)
    return LayerShape(
        attention=attention.divided,
        mlp=mlp,
        experts=experts,
        replicated=replicated,
        window=window,
        is_moe=mixture is not None,
        largest_matrix=largest,
        replicated_linear=attention.replicated_linear,
        has_cache=not is_linear,
        state=attention.value_size if is_linear else 0,
        norms=_norms(config, family),
    )


def _norms(config: ConfigValues, family: Family) -> int:
    kind = config.values.get("model_type")
    if kind == "falcon" and not config.flag("new_decoder_architecture", False):
        return 1 if config.flag("parallel_attn", True) else 2
    if kind == "falcon":
        return config.optional_count("num_ln_in_parallel_attn", limit=2) or 2
    if kind == "stablelm" and config.flag("use_parallel_residual", False):
        return 1
    return family.norms
