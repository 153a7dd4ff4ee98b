"""The experts of a model: how many, how wide, and which layers have them."""

from dataclasses import replace

from jobs.catalog.sentence import Sentence
from jobs.planner.shapes.config_values import LAYER_LIMIT, ConfigValues
from jobs.planner.shapes.families import Family
from jobs.planner.shapes.layer_shapes import Mixture

EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")
_CHOSEN = ("num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_top_k", "top_k_experts")
_WIDTHS = ("moe_intermediate_size", "expert_intermediate_size", "expert_ffn_hidden_size")
_SHARED = ("shared_expert_intermediate_size", "shared_intermediate_size", "moe_shared_expert_intermediate_size")
_FEEDS = {"dense": False, "sparse": True, "moe": True, "hash_moe": True}


def read_mixture(config: ConfigValues, family: Family, num_layers: int) -> Mixture | None:
    """Return the sizes of the experts, None for a model without. Raises: ShapeUnreadable."""
    config = _one_for_all(config, num_layers)
    experts = config.optional_count(
        *EXPERTS, low=1 if family.mixture and not family.may_lack_experts else 0, limit=100_000
    )
    if experts == 0 or (experts is None and not family.mixture):
        return None
    if experts is None:
        first, *others = [key for key in EXPERTS if key not in config.foreign] or EXPERTS
        text = Sentence("is missing. It must be a whole number.")
        if others:
            text = Sentence("is missing (also called {others}). It must be a whole number.", others=", ".join(others))
        raise config.refusal(first, text)
    per_token = config.count(*_CHOSEN, limit=100_000)
    if per_token > experts:
        raise config.refusal(
            config.first(*_CHOSEN),
            Sentence(
                "is {per_token}. It cannot be more than the {experts} experts.", per_token=per_token, experts=experts
            ),
        )
    width = config.optional_count(*_WIDTHS) or config.count("intermediate_size")
    num_shared = config.optional_count("n_shared_experts", "num_shared_experts", low=0, limit=100_000) or 0
    shared_width = config.optional_count(*_SHARED, low=0)
    if family.width_key == "intermediate_size_mlp":  # Llama 4 has one shared expert, and no key for it
        num_shared = 1
    if shared_width is None:
        shared_width = num_shared * width
    elif shared_width:
        num_shared = num_shared or 1
    mixture = Mixture(
        experts=experts,
        per_token=per_token,
        width=width,
        num_shared=num_shared,
        shared_width=shared_width,
        layers=_expert_layers(config, num_layers),
    )
    return family.mixture_of(config, mixture) if family.mixture_of else mixture


def _one_for_all(config: ConfigValues, num_layers: int) -> ConfigValues:
    """Return a config that has one number where it lists the same for every layer (Hunyuan)."""
    listed = {
        key: value[0]
        for key in (*EXPERTS, *_CHOSEN, *_WIDTHS)
        if isinstance(value := config.values.get(key), list)
        and len(value) == num_layers
        and value == value[:1] * num_layers
    }
    return replace(config, values={**config.values, **listed}) if listed else config


def _expert_layers(config: ConfigValues, num_layers: int) -> tuple[bool, ...]:
    listed = _listed(config, num_layers)
    if listed is not None:
        return listed
    first = config.optional_count("first_k_dense_replace", "num_dense_layers", low=0, limit=LAYER_LIMIT) or 0
    dense = set(config.items("mlp_only_layers", int) or ())
    keys = ("decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_interval")
    step = config.optional_count(*keys, limit=LAYER_LIMIT) or 1
    every = config.optional_count("moe_layer_freq", limit=LAYER_LIMIT) or 1
    start = config.optional_count("moe_layer_start_index", low=0, limit=LAYER_LIMIT) or 0
    end = config.optional_count("moe_layer_end_index", low=-1, limit=LAYER_LIMIT)
    last = num_layers - 1 if end is None or end < 0 else end
    period = config.optional_count("expert_layer_period", limit=LAYER_LIMIT) or 1
    offset = config.optional_count("expert_layer_offset", low=0, limit=LAYER_LIMIT) or 0
    return tuple(
        index >= first
        and index % every == 0
        and (index + 1) % step == 0
        and index not in dense
        and start <= index <= last
        and index % period == offset % period
        for index in range(num_layers)
    )


def _listed(config: ConfigValues, num_layers: int) -> tuple[bool, ...] | None:
    feeds = config.items("mlp_layer_types", str)
    if feeds is not None:
        unknown = next((feed for feed in feeds if feed not in _FEEDS), None)
        if unknown is not None or len(feeds) != num_layers:
            problem = Sentence(
                "must have one of {known} for each of {num_layers} layers.",
                known=", ".join(_FEEDS),
                num_layers=num_layers,
            )
            raise config.refusal("mlp_layer_types", problem)
        return tuple(_FEEDS[feed] for feed in feeds)
    chosen = config.items("moe_layers", int)
    frequency = config.value("moe_layer_freq")
    if isinstance(frequency, list | tuple):
        numbers = config.items("moe_layer_freq", int) or ()
        if len(numbers) != num_layers or set(numbers) - {0, 1}:
            raise config.refusal(
                "moe_layer_freq",
                Sentence("must be a number or a list of {num_layers} zeros and ones.", num_layers=num_layers),
            )
        return tuple(value == 1 for value in numbers)
    if chosen is None and config.has("moe_layers_enum"):
        chosen = _enumerated(config)
    if chosen is not None:
        return tuple(index in set(chosen) for index in range(num_layers))
    return None


def _enumerated(config: ConfigValues) -> tuple[int, ...]:
    """Return layers that are listed in a text, as hubs have them of Step-3.5: "3,4,5"."""
    items = [item.strip() for item in config.text("moe_layers_enum").split(",") if item.strip()]
    if not all(item.isascii() and item.isdigit() and len(item) < 5 for item in items):
        raise config.refusal("moe_layers_enum", Sentence("must be layers, separated by commas."))
    return tuple(map(int, items))
