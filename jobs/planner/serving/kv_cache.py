"""How a rollout engine cuts its cache of keys and values, and how many tokens it holds.

vLLM (read in 0.32, v1/core/kv_cache_utils.py): the cache is a pool of blocks. Layers that look at the same tokens are
put into groups of equal size; a block serves one group, so that it is as large as a group's layers are many, and holds
more tokens where they keep less of each. Up to 0.20.0 it reported blocks // groups * tokens of a block, since then
what fits of sequences of the greatest length.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from jobs.planner.job import Engine
from jobs.planner.shapes.layer_shapes import LayerShape
from jobs.planner.shapes.model_shape import ModelShape

BLOCK_TOKENS = 16  # vLLM's block on CUDA and ROCm unless it is set; of SGLang 1
_ENDLESS = 1 << 31  # tokens, beyond any context
_STATE_BYTES = 2  # an element of a linear attention's state, unless it is float32
# vLLM (DeepseekV32IndexerCache) and SGLang (index_k_with_scale_buffer): 8 bits each, and a float32 for 128 of them.
_INDEXED_BYTES = 1 + 4 / 128


@dataclass(frozen=True, slots=True, kw_only=True)
class KvCacheGroup:
    """Layers that share a table of blocks: `window` tokens are kept of each sequence, 0 for all, and `is_state` for
    those that keep `states` of a sequence instead. `times`: tokens of their block over those of the cache's, where
    other layers keep more of a token and all blocks are alike."""

    num_layers: int
    window: int
    is_state: bool = False
    states: int = 1
    times: int = 1

    def blocks(self, tokens: float, block_tokens: int, in_flight: int) -> float:
        """Return the blocks that a sequence of `tokens` takes; `in_flight` are kept until their step has ended."""
        if self.is_state:
            return self.states
        block_tokens *= self.times
        if not self.window or tokens <= self.window + in_flight:
            return -(-tokens // block_tokens) + (1 if self.window else 0)
        return -(-(self.window - 1 + in_flight) // block_tokens) + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class KvCache:
    """The cache of one engine: `num_blocks` of `block_tokens` tokens; `block_bytes` of one, on one device of the first
    pipeline stage. `token_bytes` is what a token takes on a device that holds all layers, windows apart."""

    groups: tuple[KvCacheGroup, ...]
    block_tokens: int
    block_bytes: int
    num_blocks: int
    token_bytes: int
    in_flight: int

    def sequence_blocks(self, tokens: float) -> float:
        """Return the blocks that one sequence of `tokens` takes."""
        return sum(group.blocks(tokens, self.block_tokens, self.in_flight) for group in self.groups)

    def sequence_bytes(self, tokens: float) -> int:
        """Return the bytes, per device, that one sequence of `tokens` takes."""
        return round(self.sequence_blocks(tokens) * self.block_bytes)

    def longest_sequence(self) -> int:
        """Return the tokens of the longest single sequence that the cache holds, 0 if none. States alone set no end."""
        low, high = 0, max(self.num_blocks, 0) * self.block_tokens
        if all(group.is_state for group in self.groups):
            return _ENDLESS if self.num_blocks >= len(self.groups) else 0
        while low < high:
            middle = (low + high + 1) // 2
            if self.sequence_blocks(middle) <= self.num_blocks:
                low = middle
            else:
                high = middle - 1
        return low


def layer_token_bytes(layer: LayerShape, tensor: int, element_bytes: float) -> int:
    """Return bytes of keys and values of one token in one layer on one device; a latent is whole on each, and what an
    indexer keeps has a type of its own."""
    if not layer.cache_heads:
        return round((layer.cache - layer.indexed) * element_bytes + layer.indexed * _INDEXED_BYTES)
    return round(layer.cache // layer.cache_heads * max(layer.cache_heads // tensor, 1) * element_bytes)


def token_bytes(layers: Iterable[LayerShape], tensor: int, element_bytes: float) -> int:
    """Return bytes of one token's keys and values in all of some layers on one device."""
    return sum(layer_token_bytes(layer, tensor, element_bytes) for layer in layers)


def stage_token_bytes(engine: Engine) -> int:
    """Return bytes of one token's keys and values on one device, of the stage that keeps most."""
    layers = engine.model.layers
    return max(token_bytes((layers[i] for i in stage), engine.tensor, engine.kv_bytes) for stage in stages(engine))


def stages(engine: Engine) -> tuple[range, ...]:
    """Return the layers of each pipeline stage; what does not divide goes to those before the last, from behind."""
    num_layers = engine.model.num_layers
    counts = [num_layers // engine.pipeline] * engine.pipeline
    for i in range(2, num_layers % engine.pipeline + 2):
        counts[-i] += 1
    starts = [sum(counts[:i]) for i in range(engine.pipeline)]
    return tuple(range(start, start + count) for start, count in zip(starts, counts, strict=True))


def group_layers(model: ModelShape) -> tuple[tuple[int, ...], ...]:
    """Return the indices of the layers of each group, as vLLM's cache manager makes them.

    Kinds of attention are divided into groups as large as the smallest kind, or as the largest kind where that is less
    than half as large again; the last of a kind is filled up with padding.
    """
    kinds: dict[tuple[int, int, int], list[int]] = {}
    for index, layer in enumerate(model.layers):
        kinds.setdefault((layer.window, layer.cache, layer.cache_heads), []).append(index)
    sizes = [len(indices) for indices in kinds.values()]
    size = max(sizes) if max(sizes) < 1.5 * min(sizes) else min(sizes)
    groups: list[tuple[int, ...]] = []
    for indices in kinds.values():
        count = -(-len(indices) // size)
        groups += [tuple(indices[i::count]) for i in range(count)]
    return tuple(groups)


def vllm_cache(engine: Engine, stage_bytes: list[int], *, batched_tokens: int, keeps_two: bool) -> KvCache:
    """Return how vLLM cuts `stage_bytes`, free on a device of each pipeline stage: the fewest blocks of any stage.

    `keeps_two`: a window keeps the tokens of two steps, and prefixes are kept of models with states, too: with the
    state of a sequence that of its last whole block (MambaSpec, "align")."""
    model = engine.model
    per_layer = {id(layer): layer_token_bytes(layer, engine.tensor, engine.kv_bytes) for layer in model.layers}
    most = max(per_layer.values())
    block_tokens = engine.block_tokens or BLOCK_TOKENS
    state = max(_state_elements(layer) for layer in model.layers) // engine.tensor * _STATE_BYTES
    if state and most:  # a page of attention is made at least as large as a state
        block_tokens *= max(-(-state // (most * block_tokens)), 1)
    members = group_layers(model)
    page = most * block_tokens or state or 1  # of a model that keeps nothing, no token is too many
    # A group is as wide on a stage as its layers there: with padding, all are as wide as the widest.
    widths = [max(len(set(group) & set(stage)) for group in members) for stage in stages(engine)]
    blocks = [max(free, 0) // (width * page) for free, width in zip(stage_bytes, widths, strict=True) if width]
    firsts = [model.layers[group[0]] for group in members]
    groups = tuple(
        KvCacheGroup(
            num_layers=len(group),
            window=layer.window,
            is_state=not layer.has_cache,
            states=2 if keeps_two and engine.has_prefix_cache else 1,
            times=_times(most, per_layer[id(layer)]),
        )
        for group, layer in zip(members, firsts, strict=True)
    )
    return KvCache(
        groups=groups,
        block_tokens=block_tokens,
        block_bytes=widths[0] * page,
        num_blocks=min(blocks, default=0),
        token_bytes=stage_token_bytes(engine),
        in_flight=batched_tokens * (2 if keeps_two else 1),
    )


def _state_elements(layer: LayerShape) -> int:
    """Return elements of two bytes of what a layer keeps of a sequence."""
    return layer.state + layer.float_state


def _times(most: int, own: int) -> int:
    """Return how many times as many tokens a layer's blocks hold as those of the layer that keeps most; where that is
    no whole number they are filled up (unify_kv_cache_spec_page_size)."""
    return most // own if own and not most % own else 1


def _with_own_cache(layer: LayerShape) -> LayerShape:
    return replace(layer, cache=layer.shared_cache, has_cache=True) if layer.shared_cache else layer


def sglang_cache(engine: Engine, free: int, window_share: float, state_ratio: float) -> KvCache:
    """Return how SGLang cuts `free` bytes: layers with a window have a pool of `window_share` of the others' tokens.

    A layer that uses another's keys and values has room for its own nevertheless. States have a pool of their own
    beside that of tokens (handle_max_mamba_cache): `state_ratio` of its bytes, or those of `max_num_seqs` where no
    prefix is kept. Where no layer keeps anything of a token, each sequence has its states.
    """
    stage = [_with_own_cache(engine.model.layers[i]) for i in max(stages(engine), key=len)]
    seen = [layer for layer in stage if layer.has_cache]
    whole, windowed = (
        token_bytes((layer for layer in seen if bool(layer.window) == has_window), engine.tensor, engine.kv_bytes)
        for has_window in (False, True)
    )
    weight = whole + (window_share if whole else 1.0) * windowed
    states = sum(_state_elements(layer) for layer in stage) // engine.tensor * _STATE_BYTES
    each = weight or states or 1
    if weight and states:
        is_counted = bool(engine.max_num_seqs) and not engine.has_prefix_cache
        free -= engine.max_num_seqs * states if is_counted else round(free * state_ratio / (1 + state_ratio))
    return KvCache(
        groups=(KvCacheGroup(num_layers=len(stage), window=0, is_state=not seen),),
        block_tokens=1,
        block_bytes=round(each),
        num_blocks=int(max(free, 0) // each),
        token_bytes=stage_token_bytes(engine),
        in_flight=0,
    )
