"""Decoders whose layers mix tokens by state spaces, linear attention or convolutions, alone or beside attention."""

from collections.abc import Mapping
from dataclasses import replace

from jobs.catalog.sentence import Sentence
from jobs.planner.shapes.config_values import LAYER_LIMIT, ConfigValues
from jobs.planner.shapes.families import NO, YES, Family, FamilyProperty
from jobs.planner.shapes.layer_kinds import FULL, LINEAR, named
from jobs.planner.shapes.layer_shapes import LayerKind, Mixer, Mixture
from jobs.planner.shapes.mixers import read_attention, read_latent_attention
from jobs.planner.shapes.state_spaces import (
    attention_beside_mamba2,
    gated_delta,
    kimi_delta,
    lightning,
    mamba,
    mamba2,
    mamba_of_width,
    mamba_with_norms,
    mlstm,
    recurrent_unit,
    rwkv,
    short_convolution,
)

_LETTERS = {"M": LINEAR, "*": FULL, "-": "mlp", "E": "moe"}
_NAMES = {"mamba": LINEAR, "attention": FULL}
_MLP_BIAS = FamilyProperty(False, "mlp_bias")


def _only_mixer(mixer: str) -> tuple[LayerKind, ...]:
    return (LayerKind(mixer=mixer, feed=""),)


def _all_linear(config: ConfigValues, family: Family, num_layers: int) -> tuple[LayerKind, ...]:
    return _only_mixer(LINEAR) * num_layers


def _nemotron_names(config: ConfigValues) -> tuple[str, ...]:
    listed = config.items("layers_block_type", str)
    if listed is None:
        pattern = config.text("hybrid_override_pattern")
        unknown = next((letter for letter in pattern if letter not in _LETTERS), None)
        if unknown is not None:
            text = Sentence("has {letter}. Known are {known}.", letter=unknown, known=", ".join(_LETTERS))
            raise config.refusal("hybrid_override_pattern", text)
        return tuple(_LETTERS[letter] for letter in pattern)
    return tuple(_NAMES.get(name, name) for name in listed)


def _nemotron_layers(config: ConfigValues, family: Family, num_layers: int) -> tuple[LayerKind, ...]:
    """Return layers of one block each: a mixer, an MLP or experts (Nemotron-H)."""
    kinds = {
        LINEAR: LayerKind(mixer=LINEAR, feed=""),
        FULL: LayerKind(mixer=FULL, feed=""),
        "mlp": LayerKind(mixer="", feed="dense"),
        "moe": LayerKind(mixer="", feed="experts"),
    }
    names = _nemotron_names(config)
    if "moe" in names:
        config.count("n_routed_experts", "num_local_experts", "num_experts")
    for name in names:
        if name not in kinds:
            text = Sentence("has {kind}. Known are {known}.", kind=config.shown(name), known=", ".join(kinds))
            raise config.refusal("layers_block_type", text)
    return tuple(kinds[name] for name in names)


def _nemotron_experts(config: ConfigValues, mixture: Mixture) -> Mixture | None:
    shared = config.optional_count("moe_shared_expert_intermediate_size") or 0
    inner = config.optional_count("moe_latent_size") or 0
    names = _nemotron_names(config)
    layers = tuple(name == "moe" for name in names)
    if not any(layers):
        return None
    return replace(mixture, num_shared=1, shared_width=shared, inner=inner, layers=layers)


def _jamba_layers(config: ConfigValues, family: Family, num_layers: int) -> tuple[LayerKind, ...]:
    every = config.optional_count("attn_layer_period", limit=LAYER_LIMIT) or 8
    offset = config.optional_count("attn_layer_offset", low=0, limit=LAYER_LIMIT)
    offset = 4 if offset is None else offset
    names = [FULL if index % every == offset else LINEAR for index in range(num_layers)]
    return named(config, family, names, num_layers)


def _bamba_layers(config: ConfigValues, family: Family, num_layers: int) -> tuple[LayerKind, ...]:
    full = set(config.items("attn_layer_indices", int) or ())
    names = [FULL if index in full else LINEAR for index in range(num_layers)]
    return named(config, family, names, num_layers)


def _granite_layers(config: ConfigValues, family: Family, num_layers: int) -> tuple[LayerKind, ...]:
    names = config.items("layer_types", str) or config.items("layers_block_type", str)
    return named(config, family, names or (LINEAR,) * num_layers, num_layers)


def _all_side_by_side(config: ConfigValues, family: Family, num_layers: int) -> tuple[LayerKind, ...]:
    return (LayerKind(mixer="hybrid"),) * num_layers


def _lfm_layers(config: ConfigValues, family: Family, num_layers: int) -> tuple[LayerKind, ...]:
    names = config.items("layer_types", str)
    if names is None:
        full = config.items("full_attn_idxs", int)
        names = tuple(FULL if full is None or index in full else "conv" for index in range(num_layers))
    return named(config, family, names, num_layers)


def _lfm_width(config: ConfigValues, hidden: int) -> int:
    """Return the width of LFM2's MLP: two thirds of what is said, times a factor, rounded up to a multiple."""
    width = config.count("block_ff_dim", "intermediate_size")
    if not config.flag("block_auto_adjust_ff_dim", True):
        return width
    width = 2 * width // 3
    key = "block_ffn_dim_multiplier"
    if config.has(key):
        width = max(int(config.factor(key) * width), 1)
    multiple = config.optional_count("block_multiple_of") or 256
    return -(-width // multiple) * multiple


def _recurrent_layers(config: ConfigValues, family: Family, num_layers: int) -> tuple[LayerKind, ...]:
    types = config.items("block_types", str) or ("recurrent", "recurrent", "attention")
    window = config.count("attention_window_size", "sliding_window")
    choices = {"recurrent": LayerKind(mixer=LINEAR), "attention": LayerKind(mixer="windowed", window=window)}
    for name in types:
        if name not in choices:
            text = Sentence("has {kind}. Known are {known}.", kind=config.shown(name), known=", ".join(choices))
            raise config.refusal("block_types", text)
    return tuple(choices[types[index % len(types)]] for index in range(num_layers))


def _half_width(config: ConfigValues, hidden: int) -> int:
    return config.count("intermediate_size") // 2


def _kimi_layers(config: ConfigValues, family: Family, num_layers: int) -> tuple[LayerKind, ...]:
    """Return which layers are latent attention; the lists of a checkpoint count layers from 1."""
    table = config.table("linear_attn_config")
    names = config.items("layer_types", str)
    full = table.items("full_attn_layers", int) if table is not None else None
    if names is None and full is not None:
        names = tuple(FULL if index + 1 in full else LINEAR for index in range(num_layers))
    if names is None:
        names = tuple(FULL if index and index % 4 == 0 else LINEAR for index in range(num_layers))
    return named(config, family, names, num_layers)


def _attention_of_kimi(config: ConfigValues, family: Family, hidden: int, kind: LayerKind) -> Mixer:
    """Return latent attention, whose output Kimi K3 gates by a projection of its own."""
    made = read_latent_attention(config, family, hidden, kind)
    if not config.flag("mla_use_output_gate", False):
        return made
    gate = hidden * made.heads * made.value_size
    return replace(made, divided=made.divided + gate, kind="gated latent attention", is_rough=True)


def _experts_of_kimi(config: ConfigValues, mixture: Mixture) -> Mixture:
    return replace(mixture, inner=config.optional_count("routed_expert_hidden_size") or 0)


def _extra_of_kimi(config: ConfigValues, hidden: int, kind: LayerKind) -> int:
    """Return elements of Kimi K3's norm of what its experts work in, and of what chooses among earlier residuals."""
    inner = config.optional_count("routed_expert_hidden_size") or 0
    normed = inner if kind.feed == "experts" and config.flag("latent_moe_use_norm", False) else 0
    return normed + 2 * _residuals_of_kimi(config, hidden, 0)


def _residuals_of_kimi(config: ConfigValues, hidden: int, num_layers: int) -> int:
    return 2 * hidden if config.has("attn_res_block_size") else 0


def _zamba_layers(config: ConfigValues, family: Family, num_layers: int) -> tuple[LayerKind, ...]:
    """Return Mamba layers, some with a transformer before them whose weights all share: the first of them hold them."""
    names = config.items("layers_block_type", str)
    if names is None:
        every = config.optional_count("attn_layer_period", limit=LAYER_LIMIT) or 6
        offset = config.optional_count("attn_layer_offset", low=0, limit=LAYER_LIMIT)
        offset = 4 if offset is None else offset
        rest = range(num_layers - 3)
        names = (LINEAR, LINEAR, "hybrid", *("hybrid" if i % every == offset else LINEAR for i in rest))
    kinds = named(config, family, names, num_layers)
    blocks = config.optional_count("num_mem_blocks", limit=LAYER_LIMIT) or 1
    shared = [index for index, kind in enumerate(kinds) if kind.mixer == "hybrid"]
    holders = set(shared[:blocks])
    return tuple(
        replace(kind, feed="", variant=len(shared) if index in holders else 0) for index, kind in enumerate(kinds)
    )


def _zamba_shared(config: ConfigValues, hidden: int) -> tuple[int, int, int]:
    """Return elements of the transformer that Zamba's layers share, its norms, and what it keeps of each token.

    Its attention sees the embedding beside the hidden state: twice the width.
    """
    if not config.flag("tie_word_embeddings", True):  # transformers ties none of the shared weights then
        raise config.refusal("tie_word_embeddings", Sentence("is false. Layers that share weights are counted tied."))
    wide = config.optional_count("attention_hidden_size") or 2 * hidden
    heads = config.count("num_attention_heads")
    kv_heads = config.optional_count("num_key_value_heads") or heads
    size = config.optional_count("attention_head_dim", "head_dim") or 2 * hidden // heads
    width = config.optional_count("intermediate_size") or 4 * hidden
    matrices = wide * size * (heads + 2 * kv_heads) + heads * size * hidden + 3 * hidden * width
    if config.flag("add_bias_linear", False):
        matrices += 2 * width + hidden
    return matrices, wide + hidden, 2 * kv_heads * size


def _zamba_hybrid(config: ConfigValues, family: Family, hidden: int, kind: LayerKind) -> Mixer:
    space = family.mixers[LINEAR](config, family, hidden, kind)
    matrices, norms, remaining = _zamba_shared(config, hidden)
    own = hidden * hidden
    replicated = norms if kind.variant else 0
    divided = matrices if kind.variant else 0
    rank = config.optional_count("adapter_rank") or 0
    blocks = config.optional_count("num_mem_blocks", limit=LAYER_LIMIT) or 1
    wide = config.optional_count("attention_hidden_size") or 2 * hidden
    if rank and kind.variant:  # one adapter for each place where the shared weights stand
        width = config.optional_count("intermediate_size") or 4 * hidden
        each = hidden * rank + 2 * width * rank
        if config.flag("use_shared_attention_adapter", False):
            each += 3 * (2 * wide * rank)
        total = kind.variant * each
        divided += total // blocks
        if total % blocks:
            text = Sentence("is {blocks}. The shared layers must be a multiple of it.", blocks=blocks)
            raise config.refusal("num_mem_blocks", text)
    return replace(
        space,
        divided=space.divided + own + divided,
        replicated=space.replicated + replicated,
        cache=remaining,
        kind="Mamba after shared attention",
    )


def _granite_experts(config: ConfigValues, mixture: Mixture) -> Mixture:
    return replace(mixture, width=config.count("intermediate_size"))


def _granite_width(config: ConfigValues, hidden: int) -> int:
    return config.count("shared_intermediate_size")


def _xlstm_width(config: ConfigValues, hidden: int) -> int:
    factor = config.value("ffn_proj_factor")
    factor = float(factor) if isinstance(factor, int | float) and 0 < factor < 100 else 2.667
    multiple = config.optional_count("ffn_round_up_to_multiple_of") or 64
    return -(-int(hidden * factor) // multiple) * multiple


def _same_width(config: ConfigValues, hidden: int, num_layers: int) -> int:
    width = config.optional_count("embedding_dim") if config.is_said("embedding_dim") else None
    if width not in (None, hidden):
        text = "is {width}. An embedding of another width than the layers, here {hidden}, is not counted."
        raise config.refusal("embedding_dim", Sentence(text, width=width, hidden=hidden))
    return 0


def _rwkv_extra(hidden: int, width: int) -> int:
    return hidden * hidden + 2 * hidden


def _rwkv_start(config: ConfigValues, hidden: int, num_layers: int) -> int:
    return 2 * hidden


def _qwen(**own: object) -> Family:
    return Family(
        qk_norm="head",
        output_gate="queries",
        windows="interval",
        mixers={LINEAR: gated_delta},
        **own,  # type: ignore[arg-type]
    )


_MAMBA = Family(norms=1, kinds=_all_linear, mixers={LINEAR: mamba_of_width}, tied=True)

HYBRID: Mapping[str, Family] = {
    "mamba": _MAMBA,
    "falcon_mamba": _MAMBA,
    "mamba2": Family(norms=1, kinds=_all_linear, mixers={LINEAR: mamba2}, defaults={"n_groups": 8}),
    "rwkv": Family(
        kinds=lambda config, family, num_layers: (LayerKind(mixer=LINEAR),) * num_layers,
        mixers={LINEAR: rwkv},
        has_layer_norm=True,
        is_gated=False,
        mlp_extra=_rwkv_extra,
        outside=_rwkv_start,
        width_times=4,
    ),
    "xlstm": Family(
        may_tie=False,
        kinds=lambda config, family, num_layers: (LayerKind(mixer=LINEAR),) * num_layers,
        mixers={LINEAR: mlstm},
        width=_xlstm_width,
        has_final_norm=FamilyProperty(True, "add_out_norm"),
        outside=_same_width,
    ),
    "jamba": Family(
        kinds=_jamba_layers,
        mixers={LINEAR: mamba_with_norms},
        qkv_bias=NO,
        output_bias=NO,
        mixture=True,
        defaults={"expert_layer_period": 2, "expert_layer_offset": 1},
    ),
    "bamba": Family(kinds=_bamba_layers, mixers={LINEAR: mamba2}, mlp_bias=_MLP_BIAS),
    "falcon_h1": Family(kinds=_all_side_by_side, mixers={"hybrid": attention_beside_mamba2}, mlp_bias=_MLP_BIAS),
    "granitemoehybrid": Family(
        kinds=_granite_layers,
        mixers={LINEAR: mamba2},
        mixture=True,
        may_lack_experts=True,
        mixture_of=_granite_experts,
        width=_granite_width,
    ),
    "nemotron_h": Family(
        may_tie=False,
        norms=1,
        defaults={"n_groups": 8},
        aliases={"head_dim": "attention_head_dim"},
        kinds=_nemotron_layers,
        mixers={LINEAR: mamba2},
        is_gated=False,
        mlp_bias=_MLP_BIAS,
        mixture_of=_nemotron_experts,
        count_layers=lambda config: len(_nemotron_names(config)),
    ),
    "zamba": Family(norms=1, kinds=_zamba_layers, mixers={LINEAR: mamba, "hybrid": _zamba_hybrid}, tied=True),
    "zamba2": Family(norms=1, kinds=_zamba_layers, mixers={LINEAR: mamba2, "hybrid": _zamba_hybrid}, tied=True),
    "lfm2": Family(
        kinds=_lfm_layers,
        mixers={"conv": short_convolution},
        qkv_bias=NO,
        output_bias=NO,
        qk_norm="head",
        width=_lfm_width,
        tied=True,
        aliases={"tie_word_embeddings": "tie_embedding"},
    ),
    "lfm2_moe": Family(
        kinds=_lfm_layers,
        mixers={"conv": short_convolution},
        qkv_bias=NO,
        output_bias=NO,
        qk_norm="head",
        mixture=True,
        tied=True,
        aliases={"tie_word_embeddings": "tie_embedding"},
    ),
    "recurrent_gemma": Family(
        kinds=_recurrent_layers,
        mixers={LINEAR: recurrent_unit, "windowed": read_attention},
        output_bias=YES,
        mlp_bias=YES,
        width=_half_width,
        tied=True,
    ),
    "kimi_linear": Family(
        may_tie=False,
        kinds=_kimi_layers,
        attention=_attention_of_kimi,
        mixers={LINEAR: kimi_delta},
        has_mla=True,
        mixture=True,
        mixture_of=_experts_of_kimi,
        layer_extra=_extra_of_kimi,
        outside=_residuals_of_kimi,
        defaults={"q_lora_rank": None, "first_k_dense_replace": 1, "num_shared_experts": 1},
    ),
    "minimax": Family(
        qkv_bias=NO,
        output_bias=NO,
        kinds=lambda config, family, num_layers: named(
            config,
            family,
            config.items("layer_types", str) or [LINEAR if index % 2 else FULL for index in range(num_layers)],
            num_layers,
        ),
        mixers={LINEAR: lightning},
        mixture=True,
    ),
    "olmo_hybrid": Family(qk_norm="projection", windows="interval", mixers={LINEAR: gated_delta}),
    "qwen3_next": _qwen(mixture=True, shared_gate=True),
    "qwen3_5_text": _qwen(),
    "qwen3_5_moe_text": _qwen(mixture=True, shared_gate=True),
}
