"""What one decoder layer is made of, by what happens to it when a model is divided."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerShape:
    """One decoder layer. Parameter counts by what happens to them when a model is divided.

    `attention`: elements that tensor parallelism divides; `mlp`: of a dense or shared MLP, divided too; `experts`: of
    all routed experts together (0 if dense), divided by expert and expert-tensor parallelism; `replicated`: norms,
    routers, and what else every tensor rank holds whole; `replicated_linear` are those of them that are matrices of
    linear layers (the down-projections of MLA). `window`: tokens that attention sees, 0 for all. `largest_matrix`:
    elements of the largest single matrix. `has_cache` is False for a layer that keeps no keys and values per token;
    `cache` are the elements it keeps of each token, those of an indexer (`indexed`) included, `cache_heads` the heads
    by which tensor parallelism divides them (0: whole on each rank, as a latent is), `shared_cache` those that another
    layer keeps for it. `state` are the elements it keeps of a sequence, however long: linear attention, state spaces,
    convolutions; a layer may have both or neither. `float_state` of them are float32 whatever the model is. `kind` is
    what mixes tokens, "" for nothing. `norms` of the hidden state, each of `hidden` elements (twice that with biases).
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
    float_state: int = 0
    norms: int = 2
    cache: int = 0
    cache_heads: int = 0
    indexed: int = 0
    shared_cache: int = 0
    kind: str = "attention"

    @property
    def total(self) -> int:
        """All elements of the layer."""
        return self.attention + self.mlp + self.experts + self.replicated


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerKind:
    """What one layer is, before its sizes are known.

    `mixer` names what mixes tokens (as layer_types of transformers do), "" for nothing; `feed` what follows: a dense
    MLP, experts, or nothing. `window` as in LayerShape. `width` of its dense MLP where that is its
    own, 0 for the model's. `variant` is what else tells layers of a family apart, as the family's pattern says.
    """

    mixer: str = "full_attention"
    feed: str = "dense"
    window: int = 0
    width: int = 0
    variant: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixer:
    """What mixes tokens in a layer: sizes, and elements by what happens to them when a model is divided.

    Of MLA `head_size` is that of queries and keys, nope + rope; ranks are 0 without it. `cache`, `indexed`,
    `shared_cache`, `state`, `kind` as in LayerShape; `experts` are elements of routed experts in it; `is_rough`: its
    memory and time are not modelled, only its parameters are counted.
    """

    heads: int = 0
    kv_heads: int = 0
    head_size: int = 0
    query_rank: int = 0
    kv_rank: int = 0
    nope_size: int = 0
    rope_size: int = 0
    value_size: int = 0
    divided: int = 0
    replicated: int = 0
    replicated_linear: int = 0
    experts: int = 0
    largest: int = 0
    cache: int = 0
    indexed: int = 0
    shared_cache: int = 0
    state: int = 0
    float_state: int = 0
    kind: str = "attention"
    is_rough: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixture:
    """Sizes of the experts; `shared_width` of all shared experts together; `layers`: which decoder layers have them.

    `inner` is the size the experts work in where it is not the hidden one: 0 for that, else it is projected to and fro.
    """

    experts: int
    per_token: int
    width: int
    num_shared: int
    shared_width: int
    layers: tuple[bool, ...]
    inner: int = 0
