"""How a rollout engine cuts its cache of keys and values, and how many tokens it holds.

vLLM (read in 0.32, v1/core/kv_cache_utils.py): the cache is a pool of blocks. Layers that look at the same tokens are
put into groups of equal size; a block serves one group, so that it is as large as a group's layers are many. Before
0.20 it reported blocks // groups * tokens of a block, since then what fits of sequences of the greatest length.
"""

from collections import Counter
from dataclasses import dataclass

from jobs.planner.job import Engine
from jobs.planner.shapes.model_shape import ModelShape

BLOCK_TOKENS = 16  # vLLM's block on CUDA and ROCm unless it is set; of SGLang 1
_STATE_BYTES = 2  # an element of a linear attention's state


@dataclass(frozen=True, slots=True, kw_only=True)
class KvCacheGroup:
    """Layers that share a table of blocks: `window` tokens are kept of each sequence, 0 for all, and `is_state` for
    those that keep one state per sequence instead."""

    num_layers: int
    window: int
    is_state: bool = False

    def blocks(self, tokens: float, block_tokens: int, in_flight: int) -> float:
        """Return the blocks that a sequence of `tokens` takes; `in_flight` are kept until their step has ended."""
        if self.is_state:
            return 1
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
        """Return the tokens of the longest single sequence that the cache holds, 0 if none."""
        low, high = 0, max(self.num_blocks, 0) * self.block_tokens
        while low < high:
            middle = (low + high + 1) // 2
            if self.sequence_blocks(middle) <= self.num_blocks:
                low = middle
            else:
                high = middle - 1
        return low


def layer_token_bytes(model: ModelShape, tensor: int, element_bytes: float) -> int:
    """Return bytes of keys and values of one token in one layer on one device; MLA's latent is whole on each."""
    if model.attention_kind == "mla":
        return round(model.latent * element_bytes)
    return round(2 * max(model.kv_heads // tensor, 1) * model.head_size * element_bytes)


def token_bytes(engine: Engine) -> int:
    """Return bytes of one token's keys and values on one device, of the stage with most layers that keep any."""
    per_layer = layer_token_bytes(engine.model, engine.tensor, engine.kv_bytes)
    return per_layer * max(sum(engine.model.layers[i].has_cache for i in stage) for stage in stages(engine))


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
    kinds: dict[tuple[int, bool], list[int]] = {}
    for index, layer in enumerate(model.layers):
        kinds.setdefault((layer.window, layer.has_cache), []).append(index)
    sizes = [len(indices) for indices in kinds.values()]
    size = max(sizes) if max(sizes) < 1.5 * min(sizes) else min(sizes)
    groups: list[tuple[int, ...]] = []
    for indices in kinds.values():
        count = -(-len(indices) // size)
        groups += [tuple(indices[i::count]) for i in range(count)]
    return tuple(groups)


def vllm_cache(engine: Engine, stage_bytes: list[int], *, batched_tokens: int, is_async: bool) -> KvCache:
    """Return how vLLM cuts `stage_bytes`, free on a device of each pipeline stage: the fewest blocks of any stage."""
    model = engine.model
    per_layer = layer_token_bytes(model, engine.tensor, engine.kv_bytes)
    block_tokens = engine.block_tokens or BLOCK_TOKENS
    state = max(layer.state for layer in model.layers) // engine.tensor * _STATE_BYTES
    if state and per_layer:  # a page of attention is made at least as large as a state
        block_tokens *= max(-(-state // (per_layer * block_tokens)), 1)
    members = group_layers(model)
    page = per_layer * block_tokens
    # A group is as wide on a stage as its layers there: with padding, all are as wide as the widest.
    widths = [max(len(set(group) & set(stage)) for group in members) for stage in stages(engine)]
    blocks = [max(free, 0) // (width * page) for free, width in zip(stage_bytes, widths, strict=True) if width]
    groups = tuple(
        KvCacheGroup(
            num_layers=len(group), window=model.layers[group[0]].window, is_state=not model.layers[group[0]].has_cache
        )
        for group in members
    )
    return KvCache(
        groups=groups,
        block_tokens=block_tokens,
        block_bytes=widths[0] * page,
        num_blocks=min(blocks, default=0),
        token_bytes=token_bytes(engine),
        in_flight=batched_tokens * (2 if is_async else 1),
    )


def sglang_cache(engine: Engine, free: int, window_share: float) -> KvCache:
    """Return how SGLang cuts `free` bytes: layers with a window have a pool of `window_share` of the others' tokens."""
    per_layer = layer_token_bytes(engine.model, engine.tensor, engine.kv_bytes)
    stage = max(stages(engine), key=len)
    kinds = Counter(bool(engine.model.layers[i].window) for i in stage if engine.model.layers[i].has_cache)
    weight = kinds[False] + (window_share if kinds[False] else 1.0) * kinds[True]
    return KvCache(
        groups=(KvCacheGroup(num_layers=len(stage), window=0),),
        block_tokens=1,
        block_bytes=round(weight * per_layer),
        num_blocks=int(max(free, 0) // (weight * per_layer)),
        token_bytes=token_bytes(engine),
        in_flight=0,
    )
