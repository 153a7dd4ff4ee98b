"""Parts that image towers are made of: patches, positions, blocks, and what leads to a decoder. Elements of each.

Source: the modeling code of transformers 5.19.
"""

from collections.abc import Callable
from dataclasses import dataclass

from jobs.catalog.sentence import Sentence
from jobs.planner.shapes.config_values import ConfigValues

Part = Callable[["Vision"], int]


@dataclass(frozen=True, slots=True)
class Vision:
    """A vision config with the model's own: `side` of its hidden state, `text` that of the decoder."""

    outer: ConfigValues
    values: ConfigValues
    side: int
    text: int

    def number(self, *keys: str, default: int | None = None, low: int = 1) -> int:
        """Return a whole number of the vision config. Raises: ShapeUnreadable."""
        number = self.values.optional_count(*keys, low=low)
        if number is None and default is None:
            return self.values.count(*keys, low=low)
        return number if number is not None else default or 0

    def edge(self, key: str, default: int) -> int:
        """Return the edge of an image or a patch, which some configs give twice. Raises: ShapeUnreadable."""
        value = self.values.value(key)
        if isinstance(value, list | tuple):
            pair = self.values.items(key, int) or (0,)
            if len(set(pair)) != 1 or pair[0] < 1:
                raise self.values.refusal(key, Sentence("is {value}. Its two sides must be equal.", value=list(pair)))
            return int(pair[0])
        return self.number(key, default=default)

    @property
    def layers(self) -> int:
        """Blocks of the tower."""
        return self.number("num_hidden_layers", "depth")

    @property
    def width(self) -> int:
        """Width of the MLP of a block."""
        number = self.values.optional_count("intermediate_size")
        return number if number is not None else round(self.side * self.ratio)

    @property
    def ratio(self) -> float:
        """How much wider the MLP is than the hidden state."""
        value = self.values.value("mlp_ratio")
        return float(value) if isinstance(value, int | float) and 0 < value < 100 else 4.0

    @property
    def patches(self) -> int:
        """Patches of an image."""
        return (self.edge("image_size", 224) // self.edge("patch_size", 16)) ** 2

    @property
    def merge(self) -> int:
        """Patches that become one token."""
        return self.number("spatial_merge_size", default=2) ** 2


def patch(*, bias: bool = True, frames: int = 1) -> Part:
    """A convolution over patches, over `frames` images at a time."""

    def count(vision: Vision) -> int:
        channels = vision.number("num_channels", "in_channels", "in_chans", default=3)
        times = vision.number("temporal_patch_size", default=frames) if frames > 1 else 1
        return channels * times * vision.edge("patch_size", 16) ** 2 * vision.side + bias * vision.side

    return count


def positions(extra: int = 0) -> Part:
    """A learned table of positions, with `extra` for a class token."""
    return lambda vision: (vision.patches + extra) * vision.side


def sides(count: int) -> Part:
    """Vectors as wide as the hidden state: norms, class tokens."""
    return lambda vision: count * vision.side


def blocks(
    *,
    gated: bool = False,
    norms: int = 4,
    qkv_bias: bool | str = True,
    out_bias: bool | str = True,
    mlp_bias: bool | str = True,
    extra: int = 0,
    width: Callable[[Vision], int] | None = None,
) -> Part:
    """Blocks of attention and an MLP. `norms` and `extra` in widths of the hidden state; a bias may be a key."""

    def count(vision: Vision) -> int:
        side, wide = vision.side, width(vision) if width else vision.width
        qkv, out, mlp = (
            vision.values.flag(each, False) if isinstance(each, str) else each
            for each in (qkv_bias, out_bias, mlp_bias)
        )
        matrices = 3 if gated else 2
        each = 4 * side * side + 3 * side * qkv + side * out + matrices * side * wide
        each += ((matrices - 1) * wide + side) * mlp + (norms + extra) * side
        return vision.layers * each

    return count


def pooling_head(vision: Vision) -> int:
    """SigLIP's head of attention pooling, built unless the config says otherwise."""
    if not vision.values.flag("vision_use_head", True):
        return 0
    side, width = vision.side, vision.width
    return side + 4 * side * side + 4 * side + 2 * side + 2 * side * width + width + side


def two_linear(inside: Callable[[Vision], int], key: str, *, norm: int = 0) -> Part:
    """Two linear layers from `inside` to the decoder, biased as `key` says; `norm` widths stand before them."""

    def count(vision: Vision) -> int:
        size, text = inside(vision), vision.text
        bias = vision.outer.flag(key, True) if key else True
        return norm * size + size * text + text * text + 2 * text * bias

    return count


def seen(vision: Vision) -> int:
    """Width of the features that the projector sees: of several layers where the config lists them."""
    layers = vision.outer.value("vision_feature_layer")
    listed = layers if isinstance(layers, list | tuple) else (layers,)
    return vision.side * max(len(listed), 1)


def newline(vision: Vision) -> int:
    return vision.text


def qwen_merger(*, norm: int, out: str) -> Part:
    """Patches side by side through two linear layers, to `out` of the vision config or the decoder's width."""

    def count(vision: Vision) -> int:
        wide = vision.merge * vision.side
        target = vision.number(out, default=vision.text)
        return norm * vision.side + wide * wide + wide + wide * target + target

    return count


def deepstack(vision: Vision) -> int:
    """Mergers of deeper features (Qwen3-VL): one for each listed layer, normed after merging."""
    wide, listed = vision.merge * vision.side, vision.values.items("deepstack_visual_indexes", int) or ()
    target = vision.number("out_hidden_size", default=vision.text)
    return len(listed) * (2 * wide + wide * wide + wide + wide * target + target)


def table(vision: Vision) -> int:
    return vision.number("num_position_embeddings", default=2304) * vision.side


def glm_merger(vision: Vision) -> int:
    """GLM's way to the decoder: a convolution that merges, a projection with a norm, a gated MLP."""
    out, width = vision.number("out_hidden_size"), vision.number("intermediate_size")
    return vision.merge * vision.side * out + out + out * out + 2 * out + 3 * out * width


def glm_ocr_merger(vision: Vision) -> int:
    out = vision.number("out_hidden_size")
    width = out * vision.number("in_channels", default=3)
    heads = vision.number("num_heads")
    norms = 2 * (vision.side // heads) * vision.layers
    return vision.merge * vision.side * out + out + out * out + 2 * out + 3 * out * width + norms


def gemma_projector(vision: Vision) -> int:
    return vision.side * vision.text + vision.side


def mistral_projector(vision: Vision) -> int:
    """Merged patches back to the tower's width, then two linear layers (Mistral Small 3.1)."""
    merge = (vision.outer.optional_count("spatial_merge_size") or 2) ** 2
    side, text = vision.side, vision.text
    bias = vision.outer.flag("multimodal_projector_bias", False)
    return side + merge * side * side + seen(vision) * text + text * text + 2 * text * bias


def paligemma_projector(vision: Vision) -> int:
    out = vision.outer.optional_count("projection_dim") or 2048  # whatever vision_config says of it
    return vision.side * out + out


def shuffled(key: str, default: int) -> Callable[[Vision], int]:
    """Width of patches that stand side by side, by a factor of the model's config."""
    return lambda vision: vision.side * (vision.outer.optional_count(key) or default) ** 2


def internvl_width(vision: Vision) -> int:
    ratio = vision.outer.value("downsample_ratio")
    ratio = ratio if isinstance(ratio, float) and 0 < ratio <= 1 else 0.5
    return vision.side * int(1 / ratio) ** 2


def internvl_norms(vision: Vision) -> int:
    """What InternVL's blocks have besides: norms of queries and keys, a norm after all where nothing is pooled."""
    side = vision.side
    total = 0 if vision.values.flag("use_mean_pooling", True) else 2 * side
    if vision.values.flag("use_qk_norm", False):
        total += 2 * side * vision.layers
    if vision.values.text("norm_type", "layer_norm") == "rms_norm":
        total -= 2 * side * vision.layers
    return total + (vision.patches + 1) * side * vision.values.flag("use_absolute_position_embeddings", True)


def idefics_projector(vision: Vision) -> int:
    return shuffled("scale_factor", 2)(vision) * vision.text


def lfm_projector(vision: Vision) -> int:
    inside = shuffled("downsample_factor", 2)(vision)
    hidden = vision.outer.optional_count("projector_hidden_size") or 2560
    bias = vision.outer.flag("projector_bias", True)
    norm = 2 * inside * vision.outer.flag("projector_use_layernorm", True)
    return norm + inside * hidden + hidden * vision.text + (hidden + vision.text) * bias


def cohere_projector(*, norm: bool) -> Part:
    def count(vision: Vision) -> int:
        inside = shuffled("downsample_factor", 2)(vision)
        width = vision.outer.optional_count("alignment_intermediate_size") or (36_864 if not norm else vision.text)
        return 2 * inside * norm + inside * width + width + width // 2 * vision.text + vision.text

    return count


def kimi_parts(vision: Vision) -> int:
    """Kimi's table of positions, final norm, and projector of merged patches."""
    merged = vision.values.items("merge_kernel_size", int) or (2, 2)
    wide = vision.side * merged[0] * merged[-1]
    table = vision.number("pos_emb_height", "init_pos_emb_height", default=64)
    table *= vision.number("pos_emb_width", "init_pos_emb_width", default=64)
    projector = 2 * vision.side + wide * wide + wide + wide * vision.text + vision.text
    return table * vision.side + 2 * vision.side + projector


def llama4_parts(vision: Vision) -> int:
    """Llama 4's adapter of shuffled pixels and its projector, neither with biases."""
    inside, out = (
        vision.number("projector_input_dim", default=4096),
        vision.number("projector_output_dim", default=4096),
    )
    adapter = vision.width * inside + out * out
    return adapter + vision.number("vision_output_dim", default=4096) * vision.text


def minimax_projector(vision: Vision) -> int:
    wide = vision.outer.optional_count("projector_hidden_size") or vision.text
    text = vision.text
    first = vision.side * wide + wide + wide * text + text
    merged = vision.outer.optional_count("merged_hidden_size") or vision.merge * text
    return first + merged * wide + wide + wide * text + text


def paddle_projector(vision: Vision) -> int:
    wide = vision.merge * vision.side
    return 2 * vision.side + wide * wide + wide + wide * vision.text + vision.text


def by_ratio(vision: Vision) -> int:
    return round(vision.side * vision.ratio)


def step_parts(vision: Vision) -> int:
    """Step's table of positions, its two convolutions that merge, and its projector."""
    side = vision.side
    merging = 9 * side * 2 * side + 2 * side + 9 * 2 * side * 4 * side + 4 * side
    bias = vision.text * vision.outer.flag("projector_bias", False)
    return vision.patches * side + merging + 4 * side * vision.text + bias


def gemma4_parts(vision: Vision) -> int:
    """Gemma 4's two tables of positions, heads of a size of their own, and its projection without a bias."""
    size, heads = vision.number("head_dim", default=64), vision.number("num_attention_heads")
    kv_heads = vision.number("num_key_value_heads", default=heads)
    table = 2 * vision.number("position_embedding_size", default=10_240) * vision.side
    attention = 2 * vision.side * size * (heads + kv_heads) - 4 * vision.side**2
    return table + (attention + 2 * size) * vision.layers + vision.side * vision.text


def several_layers(vision: Vision) -> int:
    """VipLLaVA's projector: features of several layers side by side, normed."""
    layers = vision.outer.items("vision_feature_layers", int) or (-2, -5, -8, -11, 6)
    wide = vision.side * len(layers)
    return 2 * wide + wide * vision.text + vision.text**2 + 2 * vision.text


def exaone_parts(vision: Vision) -> int:
    """What EXAONE's blocks have less than Qwen2.5-VL's: fewer heads of keys and values."""
    heads = vision.number("num_heads")
    fewer = heads - vision.number("num_key_value_heads", default=heads)
    return -vision.layers * 2 * (fewer * vision.side // heads) * (vision.side + 1)


def hyperclova_projector(vision: Vision) -> int:
    return vision.number("out_hidden_size") * vision.text + vision.text


def mllama_parts(vision: Vision) -> int:
    """What tells Llama 3.2's tower from CLIP's: tables of tiles by aspect ratio, blocks that are gated, its output."""
    side, tiles = vision.side, vision.number("max_num_tiles", default=4)
    ratios = vision.number("max_aspect_ratio_id", default=0, low=0) or len(
        vision.values.value("supported_aspect_ratios") or range(8)
    )
    tables = (ratios + 1) * tiles * side * (vision.patches + 1 + 2) + 3
    gated = vision.number("num_global_layers", default=8)
    block = 4 * side * side + 2 * side * vision.width + vision.width + 5 * side + 2
    out = vision.number("vision_output_dim", default=7680)
    return tables + gated * block + out * vision.text + vision.text
