"""Layers put together: what mixes tokens, what follows it, and the norms around them."""

from jobs.planner.shapes.config_values import ConfigValues
from jobs.planner.shapes.families import Family
from jobs.planner.shapes.layer_shapes import LayerKind, LayerShape, Mixer, Mixture
from jobs.planner.shapes.mixers import read_attention, read_latent_attention


def read_mixer(config: ConfigValues, family: Family, hidden: int, kind: LayerKind) -> Mixer:
    """Return what mixes tokens in a layer of this kind, nothing where it has none. Raises: ShapeUnreadable."""
    if not kind.mixer:
        return Mixer(kind="")
    usual = read_latent_attention if family.has_mla else read_attention
    return family.mixers.get(kind.mixer, family.attention or usual)(config, family, hidden, kind)


def read_layers(
    config: ConfigValues,
    family: Family,
    kinds: tuple[LayerKind, ...],
    mixture: Mixture | None,
    *,
    hidden: int,
    width: int,
) -> tuple[tuple[LayerShape, Mixer], ...]:
    """Return every layer with what mixes its tokens; each kind is counted once. Raises: ShapeUnreadable."""
    made: dict[LayerKind, tuple[LayerShape, Mixer]] = {}
    for kind in dict.fromkeys(kinds):
        mixer = read_mixer(config, family, hidden, kind)
        made[kind] = _layer(config, family, mixer, kind, mixture, hidden=hidden, width=kind.width or width), mixer
    return tuple(made[kind] for kind in kinds)


def _layer(
    config: ConfigValues,
    family: Family,
    mixer: Mixer,
    kind: LayerKind,
    mixture: Mixture | None,
    *,
    hidden: int,
    width: int,
) -> LayerShape:
    matrices = 3 if family.is_gated else 2
    norms = bool(kind.mixer) + bool(kind.feed) if family.norms_each_part else count_norms(config, family)
    replicated = mixer.replicated + norms * norm_elements(config, family, hidden)
    mlp, experts = 0, mixer.experts
    largest = mixer.largest
    if kind.feed == "dense":
        mlp = matrices * hidden * width
        largest = max(largest, hidden * width)
        if family.mlp_bias.of(config):
            mlp += (matrices - 1) * width
            replicated += hidden
        if family.mlp_extra is not None:
            replicated += family.mlp_extra(hidden, width)
    if kind.feed == "experts" and mixture is not None:
        one = matrices * (mixture.inner or hidden) * mixture.width
        router = hidden * mixture.experts + 2 * hidden * mixture.inner
        if family.has_expert_bias:
            one += (matrices - 1) * mixture.width + hidden
            router += mixture.experts
        if family.router_extra is not None:
            router += family.router_extra(mixture.experts, hidden)
        experts += mixture.experts * one
        mlp = matrices * hidden * mixture.shared_width
        replicated += router + hidden * family.shared_gate
        largest = max(largest, hidden * mixture.width, hidden * mixture.shared_width, hidden * mixture.experts)
    if family.layer_extra is not None:
        replicated += family.layer_extra(config, hidden, kind)
    return LayerShape(
        attention=mixer.divided,
        mlp=mlp,
        experts=experts,
        replicated=replicated,
        window=kind.window,
        is_moe=experts > 0,
        largest_matrix=largest,
        replicated_linear=mixer.replicated_linear,
        has_cache=mixer.cache > 0,
        state=mixer.state,
        float_state=mixer.float_state,
        norms=norms,
        cache=mixer.cache,
        indexed=mixer.indexed,
        shared_cache=mixer.shared_cache,
        cache_heads=0 if mixer.kv_rank else mixer.kv_heads,
        kind=mixer.kind,
    )


def norm_elements(config: ConfigValues, family: Family, hidden: int) -> int:
    """Return the elements of one norm of the hidden state. Raises: ShapeUnreadable."""
    return hidden * (2 if family.has_layer_norm and family.norm_bias.of(config) else 1)


def count_norms(config: ConfigValues, family: Family) -> int:
    """Return how many norms of the hidden state a layer has. Raises: ShapeUnreadable."""
    kind = config.value("model_type")
    if kind == "falcon" and not config.flag("new_decoder_architecture", False):
        return 1 if config.flag("parallel_attn", True) else 2
    if kind == "falcon":
        return config.optional_count("num_ln_in_parallel_attn", limit=2) or 2
    if kind == "stablelm" and config.flag("use_parallel_residual", False):
        return 1
    return family.norms
