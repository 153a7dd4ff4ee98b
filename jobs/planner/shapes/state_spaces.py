"""What mixes tokens without keys and values: state spaces, linear attention, convolutions. Elements and states.

Each keeps, however long a sequence is, a state: a matrix per head or a vector per channel, and what its convolution
still needs of the last tokens. Sources: the modeling code of transformers 5.19.
"""

from dataclasses import replace
from math import ceil

from jobs.planner.shapes.config_values import ConfigValues
from jobs.planner.shapes.families import Family
from jobs.planner.shapes.layer_shapes import LayerKind, Mixer
from jobs.planner.shapes.mixers import read_attention, read_heads


def gated_delta(config: ConfigValues, family: Family, hidden: int, kind: LayerKind) -> Mixer:
    """Return a gated delta-rule layer (Qwen3-Next, Qwen3.5, OLMo hybrid). Raises: ShapeUnreadable."""
    heads = config.optional_count("num_attention_heads") or 0
    key_heads = config.optional_count("linear_num_key_heads") or heads
    value_heads = config.optional_count("linear_num_value_heads") or heads
    if not key_heads or not value_heads:
        config.count("linear_num_key_heads" if not key_heads else "linear_num_value_heads")
    key_size, value_size = config.count("linear_key_head_dim"), config.count("linear_value_head_dim")
    kernel = config.count("linear_conv_kernel_dim")
    key, value = key_heads * key_size, value_heads * value_size
    channels = 2 * key + value
    matrices = value_heads * key_size * value_size
    # Released models of Qwen3.5 say so in their configs.
    usual = "float32" if str(config.value("model_type")).startswith("qwen3_5") else "auto"
    return Mixer(
        heads=value_heads,
        kv_heads=key_heads,
        head_size=key_size,
        divided=hidden * (channels + value + 2 * value_heads) + channels * kernel + value * hidden + 2 * value_heads,
        replicated=value_size,
        largest=hidden * channels,
        state=matrices + channels * (kernel - 1),
        float_state=matrices if config.text("mamba_ssm_dtype", usual) == "float32" else 0,
        kind="gated delta rule",
    )


def kimi_delta(config: ConfigValues, family: Family, hidden: int, kind: LayerKind) -> Mixer:
    """Return a layer of Kimi's delta attention: gates of low rank, or one of full rank in Kimi K3, and one decay per
    channel. Raises: ShapeUnreadable."""
    table = config.table("linear_attn_config")
    where = table if table is not None else config
    heads = where.count("num_heads", "linear_num_heads")
    size = where.count("head_dim" if table is not None else "linear_head_dim")
    kernel = where.count("short_conv_kernel_size", "linear_conv_kernel_dim")
    inner = heads * size
    narrow = hidden * size + size * inner
    gates = narrow + (hidden * inner if where.flag("use_full_rank_gate", False) else narrow) + hidden * heads
    return Mixer(
        heads=heads,
        kv_heads=heads,
        head_size=size,
        divided=4 * hidden * inner + gates + 3 * inner * kernel + inner + heads,
        replicated=size,
        largest=hidden * inner,
        state=heads * size * size + 3 * inner * (kernel - 1),
        kind="Kimi delta attention",
        is_rough=True,
    )


def lightning(config: ConfigValues, family: Family, hidden: int, kind: LayerKind) -> Mixer:
    """Return a layer of lightning attention (MiniMax-01): linear, its output gated. Raises: ShapeUnreadable."""
    sizes = read_heads(config, hidden)
    return Mixer(
        heads=sizes.heads,
        kv_heads=sizes.heads,
        head_size=sizes.size,
        divided=5 * hidden * sizes.query,
        replicated=sizes.query,
        largest=3 * hidden * sizes.query,
        state=sizes.query * sizes.size,
        kind="lightning attention",
        is_rough=True,
    )


def mamba(config: ConfigValues, family: Family, hidden: int, kind: LayerKind) -> Mixer:
    """Return a Mamba layer: a state of `state_size` per channel. Raises: ShapeUnreadable."""
    inner = _inner(config, hidden)
    states = config.count("state_size", "mamba_d_state")
    kernel = config.optional_count("conv_kernel", "mamba_d_conv") or 4
    rank = ceil(hidden / 16)
    for key in ("time_step_rank", "mamba_dt_rank"):
        if config.has(key) and config.value(key) != "auto":
            rank = config.count(key)
    divided = 3 * hidden * inner + inner * (kernel + 2 * rank + 3 * states + 2)
    divided += inner * _flag(config, ("use_conv_bias", "mamba_conv_bias"), True)
    has_bias = _flag(config, ("use_bias", "mamba_proj_bias"), False)
    return Mixer(
        heads=1,
        kv_heads=1,
        head_size=inner,
        divided=divided + 2 * inner * has_bias,
        replicated=hidden * has_bias,
        largest=2 * hidden * inner,
        state=inner * states + inner * (kernel - 1),
        kind="Mamba",
        is_rough=True,
    )


def mamba_of_width(config: ConfigValues, family: Family, hidden: int, kind: LayerKind) -> Mixer:
    """Return a Mamba layer as wide as the config says, whatever it expands by. Raises: ShapeUnreadable."""
    width = config.optional_count("intermediate_size") if config.is_said("intermediate_size") else None
    if width is None:
        return mamba(config, family, hidden, kind)
    said = ConfigValues(
        values={**config.values, "mamba_d_ssm": width}, name=config.name, path=config.path, defaults=config.defaults
    )
    return mamba(said, family, hidden, kind)


def mamba_with_norms(config: ConfigValues, family: Family, hidden: int, kind: LayerKind) -> Mixer:
    """Return a Mamba layer that norms the step, B and C (Jamba). Raises: ShapeUnreadable."""
    plain = mamba(config, family, hidden, kind)
    rank = config.value("mamba_dt_rank")
    rank = ceil(hidden / 16) if rank in (None, "auto") else config.count("mamba_dt_rank")
    return replace(plain, replicated=plain.replicated + rank + 2 * config.count("mamba_d_state"))


def mamba2(config: ConfigValues, family: Family, hidden: int, kind: LayerKind) -> Mixer:
    """Return a Mamba-2 layer: a state per head, B and C per group. Raises: ShapeUnreadable."""
    heads = config.count("mamba_num_heads", "mamba_n_heads", "n_mamba_heads", "num_heads")
    inner = _inner(config, hidden)
    own = config.optional_count("mamba_head_dim") if config.has("mamba_num_heads") else None
    inner = heads * own if own else inner
    states = config.count("ssm_state_size", "mamba_d_state", "state_size")
    kernel = config.optional_count("conv_kernel", "mamba_d_conv") or 4
    groups = config.optional_count("n_groups", "mamba_n_groups", "mamba_ngroups") or 1
    channels = inner + 2 * groups * states
    divided = hidden * (inner + channels + heads) + channels * kernel + 3 * heads + inner * hidden
    divided += channels * _flag(config, ("use_conv_bias", "mamba_conv_bias"), True)
    has_norm = config.flag("mamba_rms_norm", True)
    has_bias = _flag(config, ("mamba_proj_bias", "use_bias", "add_bias_linear"), False)
    divided += (inner + channels + heads) * has_bias
    return Mixer(
        heads=heads,
        kv_heads=groups,
        head_size=max(inner // heads, 1),
        divided=divided + inner * has_norm,
        replicated=hidden * has_bias,
        largest=hidden * (inner + channels + heads),
        state=inner * states + channels * (kernel - 1),
        kind="Mamba-2",
        is_rough=True,
    )


def attention_beside_mamba2(config: ConfigValues, family: Family, hidden: int, kind: LayerKind) -> Mixer:
    """Return attention and Mamba-2 side by side in one layer (Falcon-H1). Raises: ShapeUnreadable."""
    heads, space = read_attention(config, family, hidden, kind), mamba2(config, family, hidden, kind)
    return replace(
        heads,
        divided=heads.divided + space.divided,
        replicated=heads.replicated + space.replicated,
        largest=max(heads.largest, space.largest),
        state=space.state,
        kind="attention beside Mamba-2",
        is_rough=True,
    )


def short_convolution(config: ConfigValues, family: Family, hidden: int, kind: LayerKind) -> Mixer:
    """Return a gated short convolution (LFM2): three projections of the width, one back. Raises: ShapeUnreadable."""
    kernel = config.count("conv_L_cache")
    has_bias = config.flag("conv_bias", False)
    return Mixer(
        heads=1,
        kv_heads=1,
        head_size=hidden,
        divided=4 * hidden * hidden + hidden * kernel + 4 * hidden * has_bias,
        replicated=hidden * has_bias,
        largest=3 * hidden * hidden,
        state=hidden * kernel,
        kind="short convolution",
        is_rough=True,
    )


def recurrent_unit(config: ConfigValues, family: Family, hidden: int, kind: LayerKind) -> Mixer:
    """Return a real-gated linear recurrent unit (RecurrentGemma), gates in blocks per head. Raises: ShapeUnreadable."""
    width = config.optional_count("lru_width") or hidden
    heads = config.count("num_attention_heads")
    kernel = config.count("conv1d_width")
    gates = 2 * (heads * (width // heads) ** 2 + width)
    return Mixer(
        heads=heads,
        kv_heads=heads,
        head_size=width // heads,
        divided=3 * hidden * width + 2 * width + width * (kernel + 2) + gates,
        replicated=hidden,
        largest=hidden * width,
        state=width + width * (kernel - 1),
        kind="recurrent unit",
        is_rough=True,
    )


def rwkv(config: ConfigValues, family: Family, hidden: int, kind: LayerKind) -> Mixer:
    """Return the time mixing of RWKV-4. Raises: ShapeUnreadable."""
    inner = config.optional_count("attention_hidden_size") or hidden
    return Mixer(
        heads=1,
        kv_heads=1,
        head_size=inner,
        divided=4 * hidden * inner + 2 * inner,
        replicated=3 * hidden,
        largest=hidden * inner,
        state=5 * hidden,
        kind="RWKV",
        is_rough=True,
    )


def mlstm(config: ConfigValues, family: Family, hidden: int, kind: LayerKind) -> Mixer:
    """Return an mLSTM layer (xLSTM): a matrix memory per head with two gates each. Raises: ShapeUnreadable."""
    heads = config.count("num_heads")
    query, value = (int(hidden * config.factor(key)) for key in ("qk_dim_factor", "v_dim_factor"))
    has_bias = config.flag("use_bias", False)
    gates = 2 * heads * (hidden + 1)
    return Mixer(
        heads=heads,
        kv_heads=heads,
        head_size=value // heads,
        divided=hidden * (2 * query + 2 * value) + gates + value * hidden + (2 * query + 2 * value) * has_bias,
        replicated=value + hidden * has_bias,
        largest=hidden * value,
        state=query * value // heads + query + heads,
        kind="mLSTM",
        is_rough=True,
    )


def _inner(config: ConfigValues, hidden: int) -> int:
    own = config.optional_count("mamba_d_ssm")
    if own:
        return own
    key = config.first("expand", "mamba_expand")
    if not config.has(key):
        return 2 * hidden
    return int(config.factor(key) * hidden)


def _flag(config: ConfigValues, keys: tuple[str, ...], default: bool) -> bool:
    return config.flag(config.first(*keys), default)
