"""Gemma: norms on both sides, windows, embeddings per layer, keys and values that layers share."""

from collections.abc import Mapping
from dataclasses import replace

from jobs.catalog.sentence import Sentence
from jobs.planner.shapes.config_values import LAYER_LIMIT, ConfigValues
from jobs.planner.shapes.families import Family
from jobs.planner.shapes.layer_kinds import FULL, SLIDING, named
from jobs.planner.shapes.layer_shapes import LayerKind, Mixer, Mixture
from jobs.planner.shapes.mixers import attention, read_heads

_OWN, _SHARED = 0, 1  # variants: a layer's own keys and values, or those of a layer before


def _share(config: ConfigValues, kinds: tuple[LayerKind, ...]) -> tuple[LayerKind, ...]:
    shared = config.optional_count("num_kv_shared_layers", low=0, limit=LAYER_LIMIT) or 0
    first = len(kinds) - shared
    is_shared = first > 0
    return tuple(
        replace(kind, variant=_SHARED if is_shared and index >= first else _OWN) for index, kind in enumerate(kinds)
    )


def _layers_of_3n(config: ConfigValues, family: Family, num_layers: int) -> tuple[LayerKind, ...]:
    names = config.items("layer_types", str) or [FULL if i % 5 == 4 else SLIDING for i in range(num_layers)]
    kinds = _share(config, named(config, family, names, num_layers))
    widths = config.value("intermediate_size")
    if not isinstance(widths, list | tuple):
        return kinds
    listed = config.items("intermediate_size", int) or ()
    if len(listed) != num_layers or min(listed) < 1:
        text = Sentence("must have a positive number for each of {num_layers} layers.", num_layers=num_layers)
        raise config.refusal("intermediate_size", text)
    return tuple(replace(kind, width=width) for kind, width in zip(kinds, listed, strict=True))


def _layers_of_4(config: ConfigValues, family: Family, num_layers: int) -> tuple[LayerKind, ...]:
    """Return the layers of Gemma 4: the last sees all tokens, and may be twice as wide where it shares."""
    names = list(config.items("layer_types", str) or [FULL if i % 6 == 5 else SLIDING for i in range(num_layers)])
    if names:
        names[-1] = FULL
    kinds = _share(config, named(config, family, names, num_layers))
    if not config.flag("use_double_wide_mlp", False):
        return kinds
    wide = 2 * config.count("intermediate_size")
    return tuple(replace(kind, width=wide) if kind.variant == _SHARED else kind for kind in kinds)


def _attention(config: ConfigValues, family: Family, hidden: int, kind: LayerKind) -> Mixer:
    sizes = read_heads(config, hidden)
    return attention(config, family, sizes, projections=0 if kind.variant == _SHARED else 2)


def _full_of_4(config: ConfigValues, family: Family, hidden: int, kind: LayerKind) -> Mixer:
    """Return a layer that sees all tokens: larger heads, fewer of keys and values, which may be one and the same."""
    sizes = read_heads(config, hidden)
    is_one = config.flag("attention_k_eq_v", False)
    size, kv_heads = _globals(config, is_one)
    sizes = replace(sizes, size=size, value=size, kv_heads=kv_heads or sizes.kv_heads)
    projections = 0 if kind.variant == _SHARED else 1 if is_one else 2
    made = attention(config, family, sizes, projections=projections)
    name = made.kind if made.is_rough else "attention with larger heads"
    return replace(made, is_rough=True, kind=name)


def _globals(config: ConfigValues, is_one: bool) -> tuple[int, int]:
    """Return the size of heads, and heads of keys and values, of layers that see all tokens (0: as the others)."""
    table = config.table("per_layer_config")
    if table is not None:  # as transformers writes it: the differences of each layer
        first = next(table.tables(), None)
        if first is not None:
            size = first.optional_count("head_dim") or config.count("head_dim")
            return size, first.optional_count("num_key_value_heads") or 0
    size = config.optional_count("global_head_dim") or 512
    return size, (config.optional_count("num_global_key_value_heads") or 0) if is_one else 0


def _experts_of_4(config: ConfigValues, mixture: Mixture) -> Mixture | None:
    """Return the experts beside the dense MLP, which stands as a shared one; None where the block is not built."""
    if not config.flag("enable_moe_block", False):
        return None
    return replace(mixture, num_shared=1, shared_width=config.count("intermediate_size"))


def _per_layer(config: ConfigValues, hidden: int) -> int:
    size = config.optional_count("hidden_size_per_layer_input", low=0) or 0
    return 2 * hidden * size + hidden if size else 0


def _extra_of_4(config: ConfigValues, hidden: int, kind: LayerKind) -> int:
    return _per_layer(config, hidden) + (3 * hidden if kind.feed == "experts" else 0)


def _extra_of_3n(config: ConfigValues, hidden: int, kind: LayerKind) -> int:
    """Return elements of AltUp (predicting and correcting streams), of LAuReL, and of the embedding per layer."""
    streams = config.optional_count("altup_num_inputs") or 4
    rank = config.optional_count("laurel_rank") or 64
    streams_own = streams**2 + streams**3 + (streams + 2) * hidden
    return streams_own + 2 * rank * hidden + hidden + _per_layer(config, hidden)


def _outside(config: ConfigValues, hidden: int, num_layers: int) -> int:
    """Return elements of the embeddings per layer and of the projection of the hidden state to them."""
    size = config.optional_count("hidden_size_per_layer_input", low=0) or 0
    if not size:
        return 0
    vocab = config.optional_count("vocab_size_per_layer_input") or 262_144
    return (vocab + hidden) * num_layers * size + size


def _outside_of_3n(config: ConfigValues, hidden: int, num_layers: int) -> int:
    streams = config.optional_count("altup_num_inputs") or 4
    return _outside(config, hidden, num_layers) + 2 * (streams - 1) * hidden * hidden


_GEMMA3 = Family(
    norms=4,
    qk_norm="head",
    windows="pattern",
    tied=True,
    # What released configs leave out, as the family's own code fills it in.
    defaults={
        "vocab_size": 262_208,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "max_position_embeddings": 131_072,
        "sliding_window": 4096,
        "sliding_window_pattern": 6,
    },
)
_GEMMA4 = Family(
    norms=4,
    qk_norm="head",
    tied=True,
    kinds=_layers_of_4,
    mixers={SLIDING: _attention, FULL: _full_of_4},
    mixture_of=_experts_of_4,
    router_extra=lambda experts, hidden: experts + hidden,
    layer_extra=_extra_of_4,
    outside=_outside,
)

GEMMA: Mapping[str, Family] = {
    "gemma": Family(tied=True),
    "gemma2": Family(norms=4, windows="alternate", tied=True, defaults={"sliding_window": 4096}),
    "vaultgemma": Family(windows="alternate", tied=True, defaults={"sliding_window": 4096}),
    "gemma3_text": _GEMMA3,
    "gemma3": _GEMMA3,
    "gemma3n_text": Family(
        norms=4,
        qk_norm="head",
        tied=True,
        kinds=_layers_of_3n,
        attention=_attention,
        layer_extra=_extra_of_3n,
        outside=_outside_of_3n,
        width=lambda config, hidden: max(_widths(config)),
        defaults={"vocab_size_per_layer_input": 262_144, "hidden_size_per_layer_input": 256},
    ),
    "gemma4_text": replace(_GEMMA4, defaults={"hidden_size_per_layer_input": 256}),
    "gemma4_unified_text": replace(_GEMMA4, outside=None, layer_extra=None),
}


def _widths(config: ConfigValues) -> tuple[int, ...]:
    if isinstance(config.value("intermediate_size"), list | tuple):
        return tuple(config.items("intermediate_size", int) or (1,))
    return (config.count("intermediate_size"),)
