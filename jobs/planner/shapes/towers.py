"""The part of a model that sees images: a vision transformer, and what leads from it to the decoder. Elements exactly.

A tower is a list of parts: patches and positions, blocks, what stands after them, a projector. Which parts a model has
is data, by the model type of its vision config and its own; the sizes are the config's. Source: the modeling code of
transformers 5.19, whose models on the meta device the tests compare with.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from jobs.planner.shapes.class_defaults import (
    class_aliases,
    has_tower_by_default,
    said_last,
    type_inside,
    vision_defaults,
)
from jobs.planner.shapes.config_values import ConfigValues
from jobs.planner.shapes.tower_parts import (
    Part,
    Vision,
    blocks,
    by_ratio,
    cohere_projector,
    deepstack,
    exaone_parts,
    gemma4_parts,
    gemma_projector,
    glm_merger,
    glm_ocr_merger,
    hyperclova_projector,
    idefics_projector,
    internvl_norms,
    internvl_width,
    kimi_parts,
    lfm_projector,
    llama4_parts,
    minimax_projector,
    mistral_projector,
    mllama_parts,
    newline,
    paddle_projector,
    paligemma_projector,
    patch,
    pooling_head,
    positions,
    qwen_merger,
    seen,
    several_layers,
    sides,
    step_parts,
    table,
    two_linear,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tower:
    """What a tower is made of. `sides`: keys of its hidden size, in order; `parts` are summed."""

    parts: tuple[Part, ...]
    sides: tuple[str, ...] = ("hidden_size",)
    defaults: Mapping[str, Any] = field(default_factory=dict)


_SIGLIP: tuple[Part, ...] = (patch(), positions(), blocks(), sides(2))
_CLIP: tuple[Part, ...] = (patch(bias=False), positions(1), sides(5), blocks())
_PIXTRAL: tuple[Part, ...] = (
    patch(bias=False),
    sides(1),
    blocks(gated=True, norms=2, qkv_bias=False, out_bias=False, mlp_bias=False),
)
_QWEN2: tuple[Part, ...] = (patch(bias=False, frames=2), blocks(), qwen_merger(norm=2, out="hidden_size"))
_QWEN2_5: tuple[Part, ...] = (
    patch(bias=False, frames=2),
    blocks(gated=True, norms=2),
    qwen_merger(norm=1, out="out_hidden_size"),
)
_QWEN3: tuple[Part, ...] = (
    patch(frames=2),
    table,
    blocks(),
    qwen_merger(norm=2, out="out_hidden_size"),
    deepstack,
)
_GLM: tuple[Part, ...] = (
    patch(frames=2),
    positions(),
    sides(2),
    blocks(
        gated=True,
        norms=2,
        qkv_bias="attention_bias",
        out_bias=False,
        mlp_bias=False,
        width=lambda vision: vision.number("out_hidden_size"),
    ),
    glm_merger,
)
_GLM_OCR: tuple[Part, ...] = (
    patch(frames=2),
    sides(1),
    blocks(gated=True, norms=2, qkv_bias="attention_bias", out_bias="attention_bias", mlp_bias="attention_bias"),
    glm_ocr_merger,
)
_INTERNVL: tuple[Part, ...] = (
    patch(),
    sides(1),
    internvl_norms,
    blocks(qkv_bias="attention_bias", extra=2),
    two_linear(internvl_width, "", norm=2),
)

# By the model type of the vision config, before what leads to the decoder.
_BODIES: Mapping[str, tuple[Part, ...]] = {
    "siglip_vision_model": (*_SIGLIP, pooling_head),
    "clip_vision_model": _CLIP,
    "idefics2_vision": _SIGLIP,
    "idefics2": _SIGLIP,
    "idefics3_vision": _SIGLIP,
    "idefics3": _SIGLIP,
    "smolvlm_vision": _SIGLIP,
    "pixtral": _PIXTRAL,
    "siglip2_vision_model": (
        patch(),
        lambda vision: vision.number("num_patches", default=256) * vision.side,
        blocks(),
        sides(2),
        pooling_head,
    ),
}

# By the model type of the whole: what leads to the decoder from a body above.
_BRIDGES: Mapping[str, tuple[Part, ...]] = {
    "gemma3": (gemma_projector,),
    "shieldgemma2": (gemma_projector,),
    "llava": (two_linear(seen, "multimodal_projector_bias"),),
    "llava_next": (two_linear(seen, "multimodal_projector_bias"), newline),
    "llava_next_video": (two_linear(seen, "multimodal_projector_bias"), newline),
    "llava_onevision": (two_linear(seen, "multimodal_projector_bias"), newline),
    "mistral3": (mistral_projector,),
    "lighton_ocr": (mistral_projector,),
    "paligemma": (paligemma_projector,),
    "idefics3": (idefics_projector,),
    "smolvlm": (idefics_projector,),
    "lfm2_vl": (lfm_projector,),
    "cohere2_vision": (cohere_projector(norm=False),),
    "aya_vision": (cohere_projector(norm=True),),
    "deepseek_vl": (two_linear(lambda vision: vision.side, ""),),
    "vipllava": (several_layers,),
    "video_llava": (two_linear(seen, "multimodal_projector_bias"),),
}

# Towers of one family only, with what leads to the decoder, by the model type of the whole.
_WHOLE: Mapping[str, Tower] = {
    "qwen2_vl": Tower(parts=_QWEN2, sides=("embed_dim",)),
    "qwen2_5_vl": Tower(parts=_QWEN2_5),
    "qwen3_vl": Tower(parts=_QWEN3, defaults={"deepstack_visual_indexes": [8, 16, 24]}),
    "qwen3_vl_moe": Tower(parts=_QWEN3, defaults={"deepstack_visual_indexes": [8, 16, 24]}),
    "cosmos3_omni": Tower(parts=_QWEN3, defaults={"deepstack_visual_indexes": [8, 16, 24]}),
    "qwen3_5": Tower(parts=_QWEN3),
    "exaone4_5": Tower(parts=(*_QWEN2_5, exaone_parts)),
    "hyperclovax_vision_v2": Tower(parts=(*_QWEN2_5, hyperclova_projector)),
    "video_llama_3": Tower(parts=(patch(), blocks(), sides(2), two_linear(lambda vision: vision.side, ""))),
    "gemma4": Tower(
        parts=(
            patch(bias=False),
            blocks(gated=True, qkv_bias="attention_bias", out_bias="attention_bias", mlp_bias=False),
            gemma4_parts,
        )
    ),
    "qwen3_5_moe": Tower(parts=_QWEN3),
    "glm4v": Tower(parts=_GLM),
    "glm46v": Tower(parts=_GLM),
    "glmga": Tower(parts=_GLM),
    "glm4v_moe": Tower(parts=_GLM),
    "glm_ocr": Tower(parts=_GLM_OCR),
    "internvl": Tower(parts=_INTERNVL),
    "qianfan_ocr": Tower(parts=_INTERNVL),
    "llama4": Tower(parts=(patch(bias=False), positions(1), sides(5), blocks(), llama4_parts)),
    "mllama": Tower(
        parts=(
            patch(bias=False),
            positions(1),
            sides(5),
            blocks(qkv_bias=False, out_bias=False),
            mllama_parts,
        )
    ),
    "kimi_k25": Tower(parts=(patch(), blocks(), kimi_parts)),
    "minimax_m3_vl": Tower(parts=(patch(bias=False, frames=2), sides(2), blocks(), minimax_projector)),
    "paddleocr_vl": Tower(parts=(*_SIGLIP, paddle_projector)),
    "step3p7": Tower(parts=(patch(bias=False), sides(2), blocks(extra=2, width=by_ratio), step_parts)),
}


KINDS = frozenset((*_WHOLE, *_BRIDGES, "fuyu"))
"""Model types whose towers are known."""


def tower_of(outer: ConfigValues, hidden: int) -> int | None:
    """Return the elements of a tower and of what leads from it to a decoder of `hidden`; None where its kind is not
    known. 0 for a model that sees no images. Raises: ShapeUnreadable."""
    if outer.value("model_type") == "fuyu":  # patches enter the decoder as they are, through one matrix
        channels, patch = outer.optional_count("num_channels") or 3, outer.optional_count("patch_size") or 30
        return (outer.optional_count("hidden_size") or hidden) * (channels * patch * patch + 1)
    if outer.table("vision_config") is None:
        return 0
    tower, vision = _tower_of(outer), vision_of(outer, hidden)
    if tower is None or vision is None:
        return None
    return sum(part(vision) for part in tower.parts)


def lacks_tower(outer: ConfigValues) -> bool:
    """Return True for a model that sees images whose config says nothing of its tower, nor that it has none."""
    if outer.table("text_config") is None or outer.table("vision_config") is not None:
        return False
    return has_tower_by_default(str(outer.value("model_type"))) and not outer.flag("language_model_only", False)


def vision_of(outer: ConfigValues, hidden: int) -> Vision | None:
    """Return the config of a tower before a decoder of `hidden`, with what its class takes for absent keys; None
    without one, or where its kind is not known. Raises: ShapeUnreadable."""
    values, tower = outer.table("vision_config"), _tower_of(outer)
    if values is None or tower is None:
        return None
    kind = str(outer.value("model_type"))
    body = _body(outer)
    usual = {**tower.defaults, **vision_defaults(kind, body)}
    aliases = class_aliases(values.values, body, kind, table="vision_aliases")
    own = said_last(values.values, aliases)
    values = ConfigValues(values=own, name=outer.name, path=values.path, defaults=usual, aliases=aliases)
    return Vision(outer, values, values.count(*tower.sides), hidden)


def hearing_of(outer: ConfigValues, hidden: int) -> int | None:
    """Return the elements of what takes in sound and leads from it to a decoder of `hidden`; None where not known.

    Gemma 4's conformer: two convolutions, layers of two gated halves, attention with relative positions and a
    convolution. Raises: ShapeUnreadable.
    """
    audio = outer.table("audio_config")
    if audio is None:
        return 0
    if outer.value("model_type") != "gemma4":
        return None
    side, layers = audio.count("hidden_size"), audio.count("num_hidden_layers")
    first, second = audio.items("subsampling_conv_channels", int) or (128, 32)
    kernel, out = audio.optional_count("conv_kernel_size") or 5, audio.optional_count("output_proj_dims") or 1536
    heads = audio.optional_count("num_attention_heads") or 8
    each = 24 * side * side + (9 + kernel) * side + side // heads
    start = 10 * first + 9 * first * second + second + 32 * second * side
    return layers * each + start + side * out + out + out * hidden


def _tower_of(outer: ConfigValues) -> Tower | None:
    kind, body = str(outer.value("model_type")), _body(outer)
    if kind in _WHOLE and body not in _BODIES:
        return _WHOLE[kind]
    if kind not in _BRIDGES or body not in _BODIES:
        return None
    bodies = _BODIES[body] * (2 if kind == "video_llava" else 1)  # one for images, one for films
    return Tower(parts=(*bodies, *_BRIDGES[kind]))


def _body(outer: ConfigValues) -> str:
    """Return the model type of the tower itself, "" where none is named."""
    values = outer.table("vision_config")
    own = values.value("model_type") if values is not None else None
    return type_inside(str(outer.value("model_type")), str(own) if own else None, "seeing") or ""
