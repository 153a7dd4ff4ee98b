"""Decoders with experts."""

from collections.abc import Mapping
from dataclasses import replace

from jobs.catalog.sentence import Sentence
from jobs.planner.shapes.config_values import ConfigValues
from jobs.planner.shapes.families import NO, Family, FamilyProperty
from jobs.planner.shapes.layer_kinds import SLIDING, named, read_mixers
from jobs.planner.shapes.layer_shapes import LayerKind, Mixer, Mixture
from jobs.planner.shapes.mixers import attention, read_heads, read_latent_attention

_QK = FamilyProperty(False, "use_qk_norm")
_OTHERWISE_DENSE_FIRST = {"first_k_dense_replace": 1}
_BY_LIST_ALONE = ("first_k_dense_replace",)  # foreign: their classes take which layers have experts from a list


def _per_expert(experts: int, hidden: int) -> int:
    return experts


def _per_width(experts: int, hidden: int) -> int:
    return hidden


def _layers_of_mimo(config: ConfigValues, family: Family, num_layers: int) -> tuple[LayerKind, ...]:
    """Return full attention first and every sixth layer, unless a list says otherwise (MiMo-V2)."""
    names = config.items("layer_types", str)
    listed = config.items("hybrid_layer_pattern", int)
    if names is None and listed is not None:
        names = tuple(SLIDING if each else "full_attention" for each in listed)
    if names is None:
        every = range(num_layers)
        names = tuple("full_attention" if i == 0 or (i + 1) % 6 == 0 else SLIDING for i in every)
    return named(config, family, names, num_layers)


def _windowed_of_mimo(config: ConfigValues, family: Family, hidden: int, kind: LayerKind) -> Mixer:
    """Return a windowed layer: sinks, and twice the heads of keys and values unless the config says how many."""
    sizes = read_heads(config, hidden)
    kv_heads = config.optional_count("swa_num_key_value_heads") or 2 * sizes.kv_heads
    if kv_heads != 2 * sizes.kv_heads:
        text = Sentence("is {value}. It must be twice num_key_value_heads.", value=kv_heads)
        raise config.refusal("swa_num_key_value_heads", text)
    return attention(config, family, replace(sizes, kv_heads=kv_heads), has_sinks=True)


def _layers_of_laguna(config: ConfigValues, family: Family, num_layers: int) -> tuple[LayerKind, ...]:
    heads = config.items("num_attention_heads_per_layer", int)
    kinds = read_mixers(config, family, num_layers)
    if heads is None:
        return kinds
    if len(heads) != num_layers or min(heads) < 1:
        text = Sentence("must have a positive number for each of {num_layers} layers.", num_layers=num_layers)
        raise config.refusal("num_attention_heads_per_layer", text)
    return tuple(replace(kind, variant=count) for kind, count in zip(kinds, heads, strict=True))


def _attention_of_laguna(config: ConfigValues, family: Family, hidden: int, kind: LayerKind) -> Mixer:
    """Return attention with as many heads as its layer has, and a gate per head or per element."""
    sizes = read_heads(config, hidden)
    per_head = config.value("gating") in (None, True, "per-head")
    gated = replace(family, output_gate="head" if per_head else "projection")
    return attention(config, gated, replace(sizes, heads=kind.variant or sizes.heads))


def _layers_of_step(config: ConfigValues, family: Family, num_layers: int) -> tuple[LayerKind, ...]:
    other = config.table("attention_other_setting")  # as its hub has it
    where = config if other is None or config.has("num_sliding_attention_heads") else other
    heads = where.optional_count("num_attention_heads" if where is other else "num_sliding_attention_heads") or 0
    kinds = read_mixers(config, family, num_layers)
    return tuple(replace(kind, variant=heads if kind.mixer == SLIDING else 0) for kind in kinds)


def _attention_of_step(config: ConfigValues, family: Family, hidden: int, kind: LayerKind) -> Mixer:
    """Return attention with a gate per head; windowed layers may have more heads (Step-3.5)."""
    sizes = read_heads(config, hidden)
    return attention(config, replace(family, output_gate="head"), replace(sizes, heads=kind.variant or sizes.heads))


def _attention_of_jetmoe(config: ConfigValues, family: Family, hidden: int, kind: LayerKind) -> Mixer:
    """Return a mixture of attention heads: queries and outputs per expert, keys and values for all."""
    size, kv_heads = config.count("kv_channels"), config.count("num_key_value_heads")
    experts = config.count("num_local_experts")
    kv = kv_heads * size
    return Mixer(
        heads=config.count("num_attention_heads"),
        kv_heads=kv_heads,
        head_size=size,
        divided=2 * hidden * kv,
        replicated=hidden + experts * hidden,
        experts=2 * experts * hidden * kv,
        largest=2 * hidden * kv,
        cache=2 * kv,
        kind="mixture of attention heads",
        is_rough=True,
    )


def _shared_of_hunyuan(config: ConfigValues, mixture: Mixture) -> Mixture:
    return replace(mixture, num_shared=1, shared_width=config.count("intermediate_size"))


def _layers_of_minimax(config: ConfigValues, family: Family, num_layers: int) -> tuple[LayerKind, ...]:
    names = config.items("layer_types", str)
    table = config.table("sparse_attention_config")
    if names is None and table is not None and table.has("sparse_attention_freq"):
        listed = table.items("sparse_attention_freq", int) or ()
        names = tuple("minimax_m3_sparse" if each else "full_attention" for each in listed)
    return named(config, family, names or ("full_attention",) * num_layers, num_layers)


def _sparse_of_minimax(config: ConfigValues, family: Family, hidden: int, kind: LayerKind) -> Mixer:
    """Return attention to chosen blocks: an indexer of its own queries and one key, both normed (MiniMax-M3)."""
    plain = attention(config, family, read_heads(config, hidden))
    table = config.table("sparse_attention_config")
    where = config if table is None else table
    heads, size = (
        where.count("sparse_num_index_heads", "index_n_heads"),
        where.count("sparse_index_dim", "index_head_dim"),
    )
    return replace(
        plain,
        replicated=plain.replicated + hidden * size * (heads + 1) + 2 * size,
        replicated_linear=hidden * size * (heads + 1),
        cache=plain.cache + size,
        kind="attention with an indexer",
        is_rough=True,
    )


def _extra_of_axk(config: ConfigValues, hidden: int, kind: LayerKind) -> int:
    return hidden if kind.feed == "experts" else 0


_DEEPSEEK = Family(mixture=True, has_mla=True, has_mtp=True)
_SPARSE = Family(
    mixture=True,
    has_mla=True,
    has_mtp=True,
    indexer="all",
    mixers={"indexed_attention": read_latent_attention},
    defaults={"first_k_dense_replace": 3},
)
_BAILING = Family(
    qkv_bias=FamilyProperty(False, "use_qkv_bias"),
    output_bias=FamilyProperty(False, "use_bias"),
    qk_norm="head",
    qk_norm_flag=_QK,
    mixture=True,
    has_mtp=True,
)
_QWEN3_MOE = Family(qk_norm="head", windows="upper", mixture=True)
_ERNIE_BIAS = FamilyProperty(False, "use_bias")
_PHI_BIAS = FamilyProperty(False, "attention_bias")


def _layers_with_indexers(config: ConfigValues, family: Family, num_layers: int) -> tuple[LayerKind, ...]:
    """Return which layers have an indexer of their own; the others use that of a layer before (GLM-5)."""
    modes = config.items("indexer_types", str)
    pattern = config.value("index_topk_pattern")
    if modes is None and isinstance(pattern, str):
        modes = tuple({"F": "full", "S": "shared"}.get(letter, letter) for letter in pattern)
    if modes is None:
        every = config.optional_count("index_topk_freq", low=0) or 1
        offset = config.optional_count("index_skip_topk_offset", low=0)
        offset = 2 if offset is None else offset
        modes = tuple("full" if max(i - offset + 1, 0) % every == 0 else "shared" for i in range(num_layers))
    if len(modes) != num_layers or set(modes) - {"full", "shared"}:
        text = Sentence("must have full or shared for each of {num_layers} layers.", num_layers=num_layers)
        raise config.refusal("indexer_types", text)
    return tuple(LayerKind(variant=mode == "shared") for mode in modes)


EXPERTS: Mapping[str, Family] = {
    "mixtral": Family(qkv_bias=NO, output_bias=NO, windows="all", mixture=True),
    "qwen2_moe": Family(qkv_bias=FamilyProperty(True, "qkv_bias"), output_bias=NO, mixture=True, shared_gate=True),
    "qwen3_moe": _QWEN3_MOE,
    "qwen3_vl_moe_text": _QWEN3_MOE,
    "qwen3_omni_moe_text": _QWEN3_MOE,
    "bailing_moe": _BAILING,  # Ling and Ring, the second generation of which has a type of its own or this one
    "bailing_moe_v2": replace(_BAILING, qk_norm_flag=FamilyProperty(True, "use_qk_norm")),
    "granitemoe": Family(mixture=True),
    "granitemoeshared": Family(mixture=True),
    "granitemoe_swa": Family(mixture=True, has_sinks=True),
    "olmoe": Family(mixture=True, qk_norm="projection"),
    "flex_olmo": Family(mixture=True, qk_norm="projection"),
    "phimoe": Family(
        qkv_bias=_PHI_BIAS,
        output_bias=_PHI_BIAS,
        head_bias=FamilyProperty(False, "lm_head_bias"),
        has_layer_norm=True,
        mixture=True,
        windows="all",
    ),
    "jetmoe": Family(attention=_attention_of_jetmoe, mixture=True, router_extra=_per_width, tied=True),
    "gpt_oss": Family(
        qkv_bias=FamilyProperty(True, "attention_bias"),
        output_bias=FamilyProperty(True, "attention_bias"),
        has_sinks=True,
        has_expert_bias=True,
        mixture=True,
        windows="alternate",
    ),
    "deepseek_v2": _DEEPSEEK,
    "deepseek_v3": _DEEPSEEK,
    "kimi_k2": _DEEPSEEK,
    "mistral4": Family(mixture=True, has_mla=True),
    "axk1": Family(mixture=True, has_mla=True, layer_extra=_extra_of_axk),
    "glm4_moe_lite": Family(
        mixture=True, has_mla=True, has_mtp=True, defaults=_OTHERWISE_DENSE_FIRST, foreign=_BY_LIST_ALONE
    ),
    "deepseek_v32": _SPARSE,
    "glm_moe_dsa": replace(_SPARSE, kinds=_layers_with_indexers),
    "glm4_moe": Family(output_bias=NO, qk_norm="head", qk_norm_flag=_QK, mixture=True, has_mtp=True),
    "glm4v_moe_text": Family(qkv_bias=FamilyProperty(True, "attention_bias"), output_bias=NO, mixture=True),
    "solar_open": Family(qkv_bias=FamilyProperty(False, "attention_bias"), output_bias=NO, mixture=True),
    "ernie4_5_moe": Family(
        qkv_bias=_ERNIE_BIAS,
        output_bias=_ERNIE_BIAS,
        mlp_bias=_ERNIE_BIAS,
        mixture=True,
        router_extra=_per_expert,
        tied=True,
        aliases={
            "num_experts": "moe_num_experts",
            "num_experts_per_tok": "moe_k",
            "num_shared_experts": "moe_num_shared_experts",
        },
    ),
    "dots1": Family(qk_norm="head", mixture=True, windows="upper"),
    "exaone_moe": Family(
        qkv_bias=NO,
        output_bias=NO,
        qk_norm="head",
        mixture=True,
        windows="pattern",
        defaults={"sliding_window_pattern": 4},
    ),
    "hunyuan_v1_moe": Family(qk_norm="head", mixture=True, mixture_of=_shared_of_hunyuan),
    "hy_v3": Family(qk_norm="head", mixture=True, defaults=_OTHERWISE_DENSE_FIRST, foreign=_BY_LIST_ALONE),
    "mimo_v2_flash": Family(
        output_bias=NO,
        mixture=True,
        kinds=_layers_of_mimo,
        mixers={SLIDING: _windowed_of_mimo},
        defaults={**_OTHERWISE_DENSE_FIRST, "v_head_dim": 128},
        foreign=_BY_LIST_ALONE,
    ),
    "afmoe": Family(
        norms=4,
        qk_norm="head",
        output_gate="projection",
        mixture=True,
        router_extra=_per_expert,
        windows="pattern",
        aliases={"sliding_window_pattern": "global_attn_every_n_layers"},
        defaults={"sliding_window_pattern": 4},
    ),
    "laguna": Family(
        qk_norm="head",
        attention=_attention_of_laguna,
        kinds=_layers_of_laguna,
        mixture=True,
        router_extra=_per_expert,
        defaults=_OTHERWISE_DENSE_FIRST,
        foreign=_BY_LIST_ALONE,
    ),
    "step3p5": Family(
        mlp_bias=FamilyProperty(False, "mlp_bias"),
        qk_norm="head",
        attention=_attention_of_step,
        kinds=_layers_of_step,
        mixture=True,
        aliases={"shared_expert_intermediate_size": "share_expert_dim"},
        foreign=("first_k_dense_replace", "moe_layer_freq"),
        # Its class has a number of experts that its code does not read.
        defaults={"num_local_experts": None, "first_k_dense_replace": 3},
    ),
    "mellum": Family(qk_norm="head", mixture=True),
    "cohere2_moe": Family(norms=1, mixture=True, windows="pattern", tied=True, defaults={"sliding_window_pattern": 4}),
    "aria_text": Family(
        mixture=True,
        aliases={"num_experts": "moe_num_experts", "num_shared_experts": "moe_num_shared_experts"},
    ),
    "llama4_text": Family(mixture=True, width_key="intermediate_size_mlp", windows="chunked"),
    "minimax_m2": Family(qkv_bias=NO, output_bias=NO, qk_norm="projection", mixture=True),
    "minimax_m3_vl_text": Family(
        qkv_bias=NO,
        output_bias=NO,
        qk_norm="head",
        mixture=True,
        width_key="dense_intermediate_size",
        kinds=_layers_of_minimax,
        mixers={"minimax_m3_sparse": _sparse_of_minimax},
    ),
}
