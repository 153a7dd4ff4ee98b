"""DeepSeek-V4: one head of keys that are the values, compressed caches, several streams of the hidden state."""

from dataclasses import replace

from jobs.catalog.sentence import Sentence
from jobs.planner.shapes.config_values import ConfigValues
from jobs.planner.shapes.families import Family
from jobs.planner.shapes.layer_kinds import SLIDING, named
from jobs.planner.shapes.layer_shapes import LayerKind, Mixer, Mixture

SPARSE, HEAVY = "compressed_sparse_attention", "heavily_compressed_attention"
_BY_RATE = {0: SLIDING, 4: SPARSE, 128: HEAVY}


def _layers(config: ConfigValues, family: Family, num_layers: int) -> tuple[LayerKind, ...]:
    """Return what each layer is: as listed, by the rates it compresses at, or two heavy ones and then in turns."""
    names = config.items("layer_types", str)
    rates = config.items("compress_ratios", int)
    if names is None and rates is not None:
        unknown = next((rate for rate in rates if rate not in _BY_RATE), None)
        if unknown is not None:
            text = Sentence("has {rate}. Known are 0, 4, 128.", rate=unknown)
            raise config.refusal("compress_ratios", text)
        names = tuple(_BY_RATE[rate] for rate in rates)[:num_layers]
    if names is None:
        names = tuple(HEAVY if index < 2 or index % 2 == 0 else SPARSE for index in range(num_layers))
    return named(config, family, names, num_layers)


def _rate(config: ConfigValues, kind: str, own: str, usual: int) -> int:
    table = config.table("compress_rates")
    inside = table.optional_count(kind) if table is not None else None
    return inside or config.optional_count(own) or usual


def _compressor(config: ConfigValues, hidden: int, query_rank: int, mixer: str) -> tuple[int, int, float]:
    """Return elements of the matrices and beside them of what compresses a layer's cache, and what stays of a token."""
    size = config.count("head_dim")
    if mixer == HEAVY:
        rate = _rate(config, HEAVY, "compress_rate_hca", 128)
        return 2 * size * hidden, rate * size + size, size / rate
    if mixer != SPARSE:
        return 0, 0, 0.0
    rate = _rate(config, SPARSE, "compress_rate_csa", 4)
    heads, small = config.count("index_n_heads"), config.count("index_head_dim")
    matrices = 4 * hidden * (size + small) + heads * small * query_rank + heads * hidden
    return matrices, 2 * rate * (size + small) + size + small, (size + small) / rate


def _attention(config: ConfigValues, family: Family, hidden: int, kind: LayerKind) -> Mixer:
    heads, size = config.count("num_attention_heads"), config.count("head_dim")
    query_rank, out_rank = config.count("q_lora_rank"), config.count("o_lora_rank")
    groups, window = config.count("o_groups"), config.count("sliding_window")
    matrices, beside, remaining = _compressor(config, hidden, query_rank, kind.mixer)
    query = heads * size
    linear = hidden * (query_rank + size) + matrices
    return Mixer(
        heads=heads,
        kv_heads=1,
        head_size=size,
        divided=query * query_rank + out_rank * query + groups * out_rank * hidden + heads,
        replicated=linear + query_rank + size + beside,
        replicated_linear=linear,
        largest=query * query_rank,
        cache=max(round(remaining), 1),
        state=window * size,
        kind="compressed attention",
        is_rough=True,
    )


def _streams(config: ConfigValues) -> int:
    return config.optional_count("hc_mult") or 4


def _mixing(config: ConfigValues, hidden: int, kind: LayerKind) -> int:
    """Return elements of the hyper-connections around a layer's two blocks: they mix the streams."""
    streams = _streams(config)
    outputs = (2 + streams) * streams
    return 2 * (outputs * (streams * hidden + 1) + 3)


def _gathering(config: ConfigValues, hidden: int, num_layers: int) -> int:
    streams = _streams(config)
    return streams * (streams * hidden + 1) + 1


def _one_shared(config: ConfigValues, mixture: Mixture) -> Mixture:
    return replace(mixture, num_shared=1, shared_width=mixture.width)


DEEPSEEK_V4 = Family(
    kinds=_layers,
    attention=_attention,
    mixers={SPARSE: _attention, HEAVY: _attention},
    mixture=True,
    mixture_of=_one_shared,
    has_mtp=True,
    layer_extra=_mixing,
    outside=_gathering,
    defaults={"sliding_window": 128},
)
