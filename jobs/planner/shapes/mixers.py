"""Attention: with keys and values per head, and latent (MLA), with an indexer or without."""

from jobs.catalog.sentence import Sentence
from jobs.planner.shapes.config_values import ConfigValues
from jobs.planner.shapes.families import Family, Heads
from jobs.planner.shapes.layer_shapes import LayerKind, Mixer


def read_heads(config: ConfigValues, hidden: int) -> Heads:
    """Return the sizes of attention with keys and values per head. Raises: ShapeUnreadable."""
    heads = config.count("num_attention_heads", "n_head", "num_heads", limit=hidden)
    kv_heads = _kv_heads(config, heads)
    size = _head_size(config, hidden, heads)
    return Heads(hidden, heads, kv_heads, size, config.optional_count("v_head_dim") or size)


def read_attention(config: ConfigValues, family: Family, hidden: int, kind: LayerKind) -> Mixer:
    """Return attention with keys and values per head. Raises: ShapeUnreadable."""
    return attention(config, family, read_heads(config, hidden))


def attention(
    config: ConfigValues, family: Family, sizes: Heads, *, has_sinks: bool = False, projections: int = 2
) -> Mixer:
    """Return attention of these sizes; `projections`: 2 for keys and values, 1 where values are the keys, 0 where both
    are another layer's. Raises: ShapeUnreadable."""
    hidden, query, kv = sizes.hidden, sizes.query, sizes.kv
    value, out = sizes.kv_heads * sizes.value, sizes.heads * sizes.value
    inner = query * (2 if family.output_gate == "queries" else 1)
    gate = {"projection": out, "head": sizes.heads}.get(family.output_gate, 0)
    inputs = (0, kv, kv + value)[projections]
    divided = hidden * (inner + inputs + gate) + out * hidden
    divided += (inner + inputs) * family.qkv_bias.of(config) + sizes.heads * (has_sinks or family.has_sinks)
    replicated = hidden * family.output_bias.of(config)
    if family.qk_norm_flag.of(config):
        replicated += _qk_norm(family, sizes, has_keys=projections > 0)
    if config.flag("qk_layernorm", False) and not family.qk_norm:
        # Layer norms per head: one for all heads in Phi, one each in StableLM.
        replicated += 4 * sizes.size if family.norms == 1 else (sizes.heads + sizes.kv_heads) * sizes.size
    if family.attention_extra is not None:
        replicated += family.attention_extra(config, sizes)
    return Mixer(
        heads=sizes.heads,
        kv_heads=sizes.kv_heads,
        head_size=sizes.size,
        divided=divided,
        replicated=replicated,
        largest=hidden * max(inner, kv),
        cache=kv + value if projections else 0,
        shared_cache=0 if projections else kv + value,
        kind=(name := _name(family, sizes, projections)),
        is_rough=name != "attention",
    )


def _name(family: Family, sizes: Heads, projections: int) -> str:
    """Return what attention is called, "attention" where memory and time of it are modelled."""
    if projections != 2:
        return "attention whose values are its keys" if projections else "attention on shared keys and values"
    if sizes.value != sizes.size:
        return "attention with values of another size"
    return "gated attention" if family.output_gate in ("projection", "head") else "attention"


def _qk_norm(family: Family, sizes: Heads, *, has_keys: bool) -> int:
    count = 1 + has_keys
    each = {
        "": 0,
        "head": count * sizes.size,
        "head_biased": 2 * count * sizes.size,
        "projection": sizes.query + sizes.kv * has_keys,
    }
    return each[family.qk_norm]


def read_latent_attention(config: ConfigValues, family: Family, hidden: int, kind: LayerKind) -> Mixer:
    """Return multi-head latent attention, with its indexer where the layer has one. Raises: ShapeUnreadable.

    `q_lora_rank` must be there, unless the family says otherwise; null means that queries are not compressed. 0
    does not: transformers asks `is None`, and makes queries of no weights.
    """
    heads = config.count("num_attention_heads", limit=hidden)
    nope = config.count("qk_nope_head_dim")
    rope = config.count("qk_rope_head_dim")
    value = config.count("v_head_dim")
    kv_rank = config.count("kv_lora_rank")
    if "q_lora_rank" not in config.values and "q_lora_rank" not in family.defaults:
        raise config.refusal("q_lora_rank", Sentence("is missing. It must be a whole number, or null for none."))
    if config.value("q_lora_rank") == 0:
        text = Sentence(
            "is 0, with which queries have no weights. It must be a whole number above 0, or null for none."
        )
        raise config.refusal("q_lora_rank", text)
    query_rank = config.optional_count("q_lora_rank") or 0
    bias = config.flag("attention_bias", False)
    query = heads * (nope + rope)
    down = hidden * query_rank + hidden * (kv_rank + rope)
    norms = query_rank + kv_rank
    biases = ((query_rank and query_rank) + kv_rank + rope + hidden) * bias
    up = (query_rank or hidden) * query + kv_rank * heads * (nope + value)
    linear, beside, remaining = _indexer(config, family, hidden, query_rank, kind)
    return Mixer(
        heads=heads,
        kv_heads=heads,
        head_size=nope + rope,
        query_rank=query_rank,
        kv_rank=kv_rank,
        nope_size=nope,
        rope_size=rope,
        value_size=value,
        divided=up + heads * value * hidden,
        replicated=down + norms + biases + linear + beside,
        replicated_linear=down + linear,
        largest=max((query_rank or hidden) * query, kv_rank * heads * (nope + value), heads * value * hidden),
        cache=kv_rank + rope + remaining,
        indexed=remaining,
        kind="latent attention with an indexer" if family.indexer else "latent attention",
        is_rough=bool(family.indexer),
    )


def _indexer(
    config: ConfigValues, family: Family, hidden: int, query_rank: int, kind: LayerKind
) -> tuple[int, int, int]:
    """Return the elements of the matrices and of the norm of an indexer, and those it keeps of each token.

    Queries from the compressed ones, one key per token for all of its heads, a weight per head (DeepSeek-V3.2).
    """
    if not family.indexer or kind.variant:
        return 0, 0, 0
    heads, size = config.count("index_n_heads"), config.count("index_head_dim")
    return heads * size * query_rank + size * hidden + heads * hidden, 2 * size, size


def _kv_heads(config: ConfigValues, heads: int) -> int:
    if config.value("model_type") == "falcon" and not config.flag("new_decoder_architecture", False):
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
