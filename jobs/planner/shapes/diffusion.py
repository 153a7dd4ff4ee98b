"""The shape of a diffusion transformer, read from its config.json in the form of diffusers (with `_class_name`).

Parameters are counted exactly: the formulas are those of the modeling code of diffusers, whose models on the meta
device they were held against. Each stream of tokens (latent, text) has linear layers of its own, modulation is computed
once per sample, and attention sees all of both streams, or in cross attention the text from the latent stream.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from jobs.catalog.sentence import Sentence
from jobs.planner.shapes.config_values import LAYER_LIMIT, ConfigValues, ShapeUnreadable

__all__ = ["DIFFUSION_CLASSES", "Block", "DiffusionShape", "is_diffusion", "read_diffusion_shape"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """`count` blocks of a kind. Elements: `parameters` of one; `latent`, `text`: of the matrices that a token of the
    stream goes through; `sample`: of those that a whole sample goes through once (modulation).

    `kept_latent`, `kept_text`: elements per token that its forward pass saves for the backward pass. `carries_text`:
    its output has a text stream. `attention`: joint over both streams; of the latent stream and across to the text;
    or joint and once more over the latent stream alone. `width` of its MLP. `adapted`: in + out of the matrices of
    attention, summed.
    """

    count: int
    parameters: int
    latent: int
    text: int
    sample: int
    kept_latent: int
    kept_text: int
    width: int
    adapted: int
    largest_matrix: int
    carries_text: bool = True
    attention: Literal["joint", "cross", "dual"] = "joint"


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffusionShape:
    """A diffusion transformer. `outside`: elements of embedders, last norm and projection; `outside_latent`,
    `outside_text` those of them that each token goes through.

    A token stands for `token_pixels` pixels a side and `token_frames` latent frames, and a latent frame for
    `frame_stride` frames after the first. `text_tokens` as its pipeline gives at most, `passes`: forward passes per
    denoising step with guidance as it is usual.
    """

    name: str
    kind: str
    blocks: tuple[Block, ...]
    hidden: int
    heads: int
    outside: int
    outside_latent: int
    outside_text: int
    token_pixels: int
    token_frames: int = 1
    frame_stride: int = 1
    is_video: bool = False
    text_tokens: int = 512
    passes: int = 1

    @property
    def parameters(self) -> int:
        """All elements."""
        return self.outside + sum(block.count * block.parameters for block in self.blocks)

    @property
    def num_layers(self) -> int:
        """All blocks."""
        return sum(block.count for block in self.blocks)


def is_diffusion(config: object) -> bool:
    """Return True for a config.json of diffusers: it names its class, and no `model_type`."""
    return isinstance(config, Mapping) and "_class_name" in config and "model_type" not in config


def read_diffusion_shape(config: Mapping[str, Any], *, name: str = "") -> DiffusionShape:
    """Return the shape that the config.json of a transformer describes. Raises: ShapeUnreadable, naming the key."""
    if not isinstance(config, Mapping):
        raise ShapeUnreadable("config", Sentence("{name}: a config is a table of values.", name=name or "config.json"))
    values = ConfigValues(values=config, name=name)
    kind = values.text("_class_name")
    if kind not in _READERS:
        problem = Sentence(
            "is {kind}, which cannot be counted. Use one of {known}.",
            kind=values.shown(kind),
            known=", ".join(DIFFUSION_CLASSES),
        )
        raise values.refusal("_class_name", problem)
    return _READERS[kind](values)


def _linear(inner: int, outer: int) -> int:
    """Return the elements of a linear layer with a bias."""
    return inner * outer + outer


def _embedding(inner: int, hidden: int) -> int:
    """Return the elements of two linear layers, as timesteps and pooled texts go through."""
    return _linear(inner, hidden) + _linear(hidden, hidden)


def _choice(values: ConfigValues, key: str, default: str | None, choices: tuple[str | None, ...]) -> str | None:
    """Return a text that is one of those known, or None. Raises: ShapeUnreadable."""
    if key not in values.values:
        return default
    choice = values.text(key) if values.has(key) else None
    if choice not in choices:
        problem = Sentence(
            "is {value}. It must be one of {known}.",
            value=values.shown(choice),
            known=", ".join("null" if each is None else each for each in choices),
        )
        raise values.refusal(key, problem)
    return choice


def _joint(hidden: int, head: int, width: int, *, normed: bool, dual: bool = False, last: bool = False) -> Block:
    """Return a block of two streams whose attention is joint (MMDiT). `dual`: the latent stream has an attention of its
    own beside it; `last`: nothing of the text stream comes out."""
    mlp = _linear(hidden, width) + _linear(width, hidden)
    latent, text = 4 * _linear(hidden, hidden) + mlp, 3 * _linear(hidden, hidden)
    sample = _linear(hidden, 9 * hidden if dual else 6 * hidden) + _linear(hidden, 2 * hidden if last else 6 * hidden)
    if dual:
        latent += 4 * _linear(hidden, hidden)
    if not last:
        text += _linear(hidden, hidden) + mlp
    # Counted with autograd hooks in bfloat16: 13 hidden states and the MLP's two; 8 more where queries and keys are
    # normed in fp32; 14 more of a second attention.
    stored = 13 * hidden + 2 * width + 8 * hidden * normed
    return Block(
        count=1,
        parameters=latent + text + sample + 4 * head * normed + 2 * head * (dual and normed),
        latent=latent,
        text=text,
        sample=sample,
        kept_latent=stored + 14 * hidden * dual,
        kept_text=stored,
        width=width,
        adapted=2 * hidden * (7 + (not last) + 4 * dual),
        largest_matrix=max((9 if dual else 6) * hidden * hidden, hidden * width),
        carries_text=not last,
        attention="dual" if dual else "joint",
    )


def _single(hidden: int, head: int, width: int, *, extra: int = 0) -> Block:
    """Return a block in which both streams go through the same matrices, attention and MLP side by side."""
    each = 3 * _linear(hidden, hidden) + _linear(hidden, width) + _linear(hidden + width, hidden)
    stored = (13 + extra) * hidden + 3 * width  # counted with autograd hooks
    return Block(
        count=1,
        parameters=each + _linear(hidden, 3 * hidden) + 2 * head,
        latent=each,
        text=each,
        sample=_linear(hidden, 3 * hidden),
        kept_latent=stored,
        kept_text=stored,
        width=width,
        adapted=6 * hidden,
        largest_matrix=(hidden + width) * hidden,
    )


def _times(block: Block, count: int) -> tuple[Block, ...]:
    return (replace(block, count=count),) if count else ()


def _inner(values: ConfigValues) -> tuple[int, int, int]:
    """Return heads, size of a head and hidden size."""
    heads = values.count("num_attention_heads", limit=10_000)
    head = values.count("attention_head_dim", limit=10_000)
    return heads, head, heads * head


def _read_sd3(values: ConfigValues) -> DiffusionShape:
    heads, head, hidden = _inner(values)
    layers = values.count("num_layers", limit=LAYER_LIMIT)
    caption = values.count("caption_projection_dim")
    if caption != hidden:
        problem = Sentence("is {value}. It must be {hidden}, heads by their size.", value=caption, hidden=hidden)
        raise values.refusal("caption_projection_dim", problem)
    normed = _choice(values, "qk_norm", None, (None, "rms_norm")) is not None
    dual = set(values.items("dual_attention_layers", int) or ())
    if strange := sorted(each for each in dual if not 0 <= each < layers):
        problem = Sentence("has the layer {layer}; there are {layers}.", layer=strange[0], layers=layers)
        raise values.refusal("dual_attention_layers", problem)
    last = layers - 1
    blocks = (
        *_times(_joint(hidden, head, 4 * hidden, normed=normed), layers - 1 - len(dual - {last})),
        *_times(_joint(hidden, head, 4 * hidden, normed=normed, dual=True), len(dual - {last})),
        _joint(hidden, head, 4 * hidden, normed=normed, dual=last in dual, last=True),
    )
    patch, channels = values.count("patch_size", limit=1024), values.count("in_channels")
    out = values.optional_count("out_channels") or channels
    embedder = patch * patch * channels * hidden + hidden
    projection = _linear(hidden, patch * patch * out)
    text = _linear(values.count("joint_attention_dim"), hidden)
    pooled = _embedding(256, hidden) + _embedding(values.count("pooled_projection_dim"), hidden)
    return DiffusionShape(
        name=values.name,
        kind="SD3Transformer2DModel",
        blocks=blocks,
        hidden=hidden,
        heads=heads,
        outside=embedder + projection + text + pooled + _linear(hidden, 2 * hidden),
        outside_latent=embedder + projection,
        outside_text=text,
        token_pixels=8 * patch,
        text_tokens=333,  # 77 of CLIP, 256 of T5
        passes=2,
    )


def _read_flux(values: ConfigValues) -> DiffusionShape:
    heads, head, hidden = _inner(values)
    blocks = (
        *_times(_joint(hidden, head, 4 * hidden, normed=True), values.count("num_layers", limit=LAYER_LIMIT)),
        *_times(_single(hidden, head, 4 * hidden), values.count("num_single_layers", low=0, limit=LAYER_LIMIT)),
    )
    patch, channels = values.count("patch_size", limit=1024), values.count("in_channels")
    out = values.optional_count("out_channels") or channels
    latent = _linear(channels, hidden) + _linear(hidden, patch * patch * out)
    text = _linear(values.count("joint_attention_dim"), hidden)
    pooled = _embedding(256, hidden) * (1 + values.flag("guidance_embeds", False))
    pooled += _embedding(values.count("pooled_projection_dim"), hidden)
    return DiffusionShape(
        name=values.name,
        kind="FluxTransformer2DModel",
        blocks=blocks,
        hidden=hidden,
        heads=heads,
        outside=latent + text + pooled + _linear(hidden, 2 * hidden),
        outside_latent=latent,
        outside_text=text,
        token_pixels=16 * patch,  # its pipeline packs two by two latents into one
    )


def _read_qwen_image(values: ConfigValues) -> DiffusionShape:
    heads, head, hidden = _inner(values)
    for key in ("zero_cond_t", "use_additional_t_cond"):
        if values.flag(key, False):
            raise values.refusal(key, Sentence("is true, which cannot be counted. It must be false."))
    block = _joint(hidden, head, 4 * hidden, normed=True)
    patch, channels = values.count("patch_size", limit=1024), values.count("in_channels")
    out = values.optional_count("out_channels") or channels
    wide = values.count("joint_attention_dim")
    latent = _linear(channels, hidden) + _linear(hidden, patch * patch * out)
    text = _linear(wide, hidden)
    return DiffusionShape(
        name=values.name,
        kind="QwenImageTransformer2DModel",
        blocks=_times(block, values.count("num_layers", limit=LAYER_LIMIT)),
        hidden=hidden,
        heads=heads,
        outside=latent + text + wide + _embedding(256, hidden) + _linear(hidden, 2 * hidden),
        outside_latent=latent,
        outside_text=text,
        token_pixels=8 * patch,
        passes=2,
    )


def _read_wan(values: ConfigValues) -> DiffusionShape:
    heads, _head, hidden = _inner(values)
    width = values.count("ffn_dim")
    normed = _choice(values, "qk_norm", "rms_norm_across_heads", (None, "rms_norm_across_heads")) is not None
    if not normed:
        raise values.refusal("qk_norm", Sentence("is null. It must be rms_norm_across_heads."))
    affine = values.flag("cross_attn_norm", True)
    image, added = values.optional_count("image_dim"), values.optional_count("added_kv_proj_dim")
    if values.has("pos_embed_seq_len"):
        raise values.refusal("pos_embed_seq_len", Sentence("is set, which cannot be counted. It must be null."))
    attention = 4 * _linear(hidden, hidden)
    mlp = _linear(hidden, width) + _linear(width, hidden)
    across = 2 * _linear(hidden, hidden)  # keys and values come of the text
    more = 2 * _linear(added, hidden) + hidden if added else 0
    block = Block(
        count=values.count("num_layers", limit=LAYER_LIMIT),
        parameters=2 * attention + 4 * hidden + 2 * hidden * affine + mlp + 6 * hidden + more,
        latent=2 * attention - across + mlp,
        text=across + more,
        sample=0,
        kept_latent=34 * hidden + 2 * width,  # counted with autograd hooks: its norms and gates are in fp32
        kept_text=6 * hidden,
        width=width,
        adapted=16 * hidden,
        largest_matrix=hidden * max(width, hidden),
        carries_text=False,
        attention="cross",
    )
    patch = values.items("patch_size", int)
    if patch is None or len(patch) != 3 or not all(1 <= each <= 1024 for each in patch) or patch[1] != patch[2]:
        problem = Sentence(
            "is {value}. It must be three sizes: frames, height and as much width.",
            value=values.shown(values.values.get("patch_size")),
        )
        raise values.refusal("patch_size", problem)
    volume = patch[0] * patch[1] * patch[2]
    channels, out = values.count("in_channels"), values.count("out_channels")
    latent = channels * volume * hidden + hidden + _linear(hidden, out * volume)
    text = _embedding(values.count("text_dim"), hidden)
    time = _embedding(values.count("freq_dim"), hidden) + _linear(hidden, 6 * hidden)
    seen = _linear(image, image) + _linear(image, hidden) + 2 * image + 2 * hidden if image else 0
    return DiffusionShape(
        name=values.name,
        kind="WanTransformer3DModel",
        blocks=(block,),
        hidden=hidden,
        heads=heads,
        outside=latent + text + time + seen + 2 * hidden,
        outside_latent=latent,
        outside_text=text + seen,
        token_pixels=(16 if out == 48 else 8) * patch[1],  # the VAE of 48 channels folds twice as many pixels
        token_frames=patch[0],
        frame_stride=4,
        is_video=True,
        passes=2,
    )


def _read_hunyuan(values: ConfigValues) -> DiffusionShape:
    heads, head, hidden = _inner(values)
    ratio = values.values.get("mlp_ratio", 4.0)
    if isinstance(ratio, bool) or not isinstance(ratio, int | float) or not 0 < ratio <= 64 or hidden * ratio % 1:
        problem = Sentence(
            "is {value}. It must be a number from 1 to 64 that makes a whole width.", value=values.shown(ratio)
        )
        raise values.refusal("mlp_ratio", problem)
    _choice(values, "qk_norm", "rms_norm", ("rms_norm",))
    _choice(values, "image_condition_type", None, (None,))
    width = int(hidden * ratio)
    blocks = (
        *_times(_joint(hidden, head, width, normed=True), values.count("num_layers", limit=LAYER_LIMIT)),
        *_times(_single(hidden, head, width, extra=1), values.count("num_single_layers", low=0, limit=LAYER_LIMIT)),
    )
    patch, frames = values.count("patch_size", limit=1024), values.count("patch_size_t", limit=1024)
    channels, out = values.count("in_channels"), values.count("out_channels")
    latent = channels * frames * patch * patch * hidden + hidden + _linear(hidden, frames * patch * patch * out)
    wide = values.count("text_embed_dim")
    mlp = _linear(hidden, 4 * hidden) + _linear(4 * hidden, hidden)  # the refiner's is as wide whatever mlp_ratio says
    each = 4 * _linear(hidden, hidden) + mlp + 4 * hidden + _linear(hidden, 2 * hidden)
    refiner = _linear(wide, hidden) + values.count("num_refiner_layers", low=0, limit=LAYER_LIMIT) * each
    pooled = _embedding(256, hidden) * (2 + values.flag("guidance_embeds", True)) + _embedding(wide, hidden)
    pooled += _embedding(values.count("pooled_projection_dim"), hidden)
    return DiffusionShape(
        name=values.name,
        kind="HunyuanVideoTransformer3DModel",
        blocks=blocks,
        hidden=hidden,
        heads=heads,
        outside=latent + refiner + pooled + _linear(hidden, 2 * hidden),
        outside_latent=latent,
        outside_text=refiner,
        token_pixels=8 * patch,
        token_frames=frames,
        frame_stride=4,
        is_video=True,
        text_tokens=256,
    )


_READERS: Mapping[str, Callable[[ConfigValues], DiffusionShape]] = {
    "SD3Transformer2DModel": _read_sd3,
    "FluxTransformer2DModel": _read_flux,
    "QwenImageTransformer2DModel": _read_qwen_image,
    "WanTransformer3DModel": _read_wan,
    "HunyuanVideoTransformer3DModel": _read_hunyuan,
}
DIFFUSION_CLASSES = tuple(_READERS)
"""The values of `_class_name` that can be read."""
