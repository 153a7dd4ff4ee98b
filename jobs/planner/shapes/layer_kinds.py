"""Which layer of a model is what: full, windowed and chunked attention, or what else its family mixes tokens with."""

from collections.abc import Sequence
from dataclasses import replace

from jobs.catalog.sentence import Sentence
from jobs.planner.shapes.config_values import LAYER_LIMIT, ConfigValues
from jobs.planner.shapes.families import Family
from jobs.planner.shapes.layer_shapes import LayerKind, Mixture

FULL, SLIDING, CHUNKED, LINEAR = "full_attention", "sliding_attention", "chunked_attention", "linear_attention"
_LETTERS = {"L": SLIDING, "G": FULL}
_ATTENTION = (FULL, SLIDING, CHUNKED)
# What released configs call kinds that have got a common name since.
_OLDER = {"mamba": LINEAR, "mamba2": LINEAR, "attention": FULL, "recurrent": LINEAR, "global": FULL, "local": SLIDING}


def read_kinds(config: ConfigValues, family: Family, mixture: Mixture | None, num_layers: int) -> tuple[LayerKind, ...]:
    """Return what each layer is. Raises: ShapeUnreadable."""
    kinds = family.kinds(config, family, num_layers) if family.kinds else read_mixers(config, family, num_layers)
    if mixture is None:
        return kinds
    return tuple(
        replace(kind, feed="experts") if has_experts and kind.feed == "dense" else kind
        for kind, has_experts in zip(kinds, mixture.layers, strict=True)
    )


def read_mixers(config: ConfigValues, family: Family, num_layers: int) -> tuple[LayerKind, ...]:
    """Return what mixes tokens in each layer, and the window it sees. Raises: ShapeUnreadable."""
    names = config.items("layer_types", str) or _names(config, family, num_layers)
    return named(config, family, names, num_layers)


def named(config: ConfigValues, family: Family, names: Sequence[str], num_layers: int) -> tuple[LayerKind, ...]:
    """Return the kinds of layers that are called so, each with its window. Raises: ShapeUnreadable."""
    kinds = [_OLDER.get(name, name) for name in names]
    key = config.first("layer_types")
    if len(kinds) != num_layers:
        raise config.refusal(
            key,
            Sentence(
                "has {count} items. It must have one for each of {num_layers} layers.",
                count=len(kinds),
                num_layers=num_layers,
            ),
        )
    choices = dict.fromkeys((*_ATTENTION, *family.mixers))
    for name, kind in zip(names, kinds, strict=True):
        if kind not in choices:
            raise config.refusal(
                key,
                Sentence("has {kind}. Known are {known}.", kind=config.shown(name), known=", ".join(choices)),
            )
    windows = dict.fromkeys(choices, 0)
    if SLIDING in kinds:
        windows[SLIDING] = config.count("sliding_window")
    if CHUNKED in kinds:
        windows[CHUNKED] = config.count("attention_chunk_size")
    return tuple(LayerKind(mixer=kind, window=windows[kind]) for kind in kinds)


def _names(config: ConfigValues, family: Family, num_layers: int) -> Sequence[str]:
    if family.windows == "interval":
        every = config.optional_count("full_attention_interval", limit=LAYER_LIMIT) or 4
        return [FULL if (index + 1) % every == 0 else LINEAR for index in range(num_layers)]
    if family.windows == "chunked":
        if config.optional_count("attention_chunk_size") is None:
            return [FULL] * num_layers
        has_rope = config.items("no_rope_layers", int) or [
            int((index + 1) % (config.optional_count("no_rope_layer_interval", limit=LAYER_LIMIT) or 4) != 0)
            for index in range(num_layers)
        ]
        return [CHUNKED if rope else FULL for rope in has_rope]
    if family.windows == "none" or not config.optional_count("sliding_window", low=0):
        return [FULL] * num_layers
    if family.windows == "alternate":
        return [FULL if index % 2 else SLIDING for index in range(num_layers)]
    if family.windows == "pattern":
        letters = config.value("sliding_window_pattern")
        if isinstance(letters, str) and letters and not set(letters) - set("LG"):  # EXAONE: the last layer sees all
            return [*(_LETTERS[letters[index % len(letters)]] for index in range(num_layers - 1)), FULL]
        every = config.count("sliding_window_pattern", limit=LAYER_LIMIT)
        return [SLIDING if (index + 1) % every else FULL for index in range(num_layers)]
    if family.windows == "all":
        return [SLIDING] * num_layers
    if not config.flag("use_sliding_window", False):
        return [FULL] * num_layers
    above = config.optional_count("max_window_layers", low=0, limit=LAYER_LIMIT)
    start = 28 if above is None else above
    return [SLIDING if index >= start else FULL for index in range(num_layers)]
