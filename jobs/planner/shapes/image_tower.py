"""What an engine's image tower computes of the greatest image that a model takes: patches, tokens, elements alive.

Sources: vLLM 0.32, its towers (model_executor/models) and how it makes the greatest image of each kind. How many pixels
Qwen's and how many tiles Llama 4's and InternVL's processors take stands in no config.json: as they were released.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from jobs.planner.shapes.config_values import ConfigValues
from jobs.planner.shapes.tower_parts import Vision
from jobs.planner.shapes.towers import vision_of

_QWEN2_PIXELS, _QWEN3_PIXELS = 12_845_056, 16_777_216
_LLAMA4_TILES, _INTERNVL_TILES = 17, 13  # of the greatest image, the whole image in small among them
_CHANNELS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageTower:
    """The greatest image: `patches` that its tower sees, of `values` pixel values each, `tokens` of `out` elements that
    leave it. `peaks`: elements of a patch alive at once where a block holds most, as (whole on each device, divided
    among tensor ranks); `beside`: those alive through all blocks."""

    patches: int
    tokens: int
    values: int
    out: int
    peaks: tuple[tuple[int, int], ...]
    beside: int = 0

    def patch_elements(self, tensor: int) -> float:
        """Return elements of one patch alive at once, beside its pixel values."""
        return self.beside + max(whole + divided / tensor for whole, divided in self.peaks)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """`greatest`: patches and tokens of the greatest image. `attention`: hidden states alive in attention, whole and
    divided; `mlp`: MLP widths alive, beside three hidden states. A patch has pixels of `frames` images."""

    greatest: Callable[[Vision], tuple[int, int]]
    attention: tuple[int, int]
    mlp: int = 2
    frames: int = 1
    beside: int = 0
    out: Callable[[Vision], int] = lambda vision: vision.text


def image_tower_of(outer: ConfigValues, hidden: int) -> ImageTower | None:
    """Return what a tower computes of the greatest image; None for a model without one, or if that is not known.

    Raises: ShapeUnreadable."""
    kind = _KINDS.get(str(outer.value("model_type")))
    vision = vision_of(outer, hidden)
    if kind is None or vision is None:
        return None
    patches, tokens = kind.greatest(vision)
    whole, divided = kind.attention
    side, width = vision.side, vision.width
    return ImageTower(
        patches=patches,
        tokens=max(tokens, 1),
        values=_CHANNELS * kind.frames * vision.edge("patch_size", 14) ** 2,
        out=kind.out(vision),
        peaks=((whole * side, divided * side), (3 * side, kind.mlp * width)),
        beside=kind.beside * side,
    )


def _by_pixels(pixels: int) -> Callable[[Vision], tuple[int, int]]:
    def greatest(vision: Vision) -> tuple[int, int]:
        patches = pixels // vision.edge("patch_size", 14) ** 2
        return patches, patches // vision.merge

    return greatest


def _gemma3(vision: Vision) -> tuple[int, int]:
    return vision.patches, vision.outer.optional_count("mm_tokens_per_image") or 256


def _llava(vision: Vision) -> tuple[int, int]:
    return vision.patches + 1, vision.patches


def _llava_next(vision: Vision) -> tuple[int, int]:
    """The grid of tiles with most, and the whole image in small; a token ends each row of patches."""
    edge, side = vision.edge("image_size", 336), vision.edge("image_size", 336) // vision.edge("patch_size", 14)
    pairs = vision.outer.value("image_grid_pinpoints")
    grids = [
        (pair[0] // edge, pair[1] // edge)
        for pair in (pairs if isinstance(pairs, list | tuple) else ())
        if isinstance(pair, list | tuple) and len(pair) == 2 and all(type(each) is int and each > 0 for each in pair)
    ]
    high, wide = max(grids or [(2, 2)], key=lambda grid: (grid[0] * grid[1], grid[0]))
    tiles = high * wide + 1
    return tiles * (side * side + 1), (tiles * side + high) * side


def _mistral3(vision: Vision) -> tuple[int, int]:
    merge = vision.outer.optional_count("spatial_merge_size") or 2
    return vision.patches, vision.patches // merge**2


def _in_tiles(tiles: int) -> Callable[[Vision], tuple[int, int]]:
    """Tiles with a class token each, of whose patches four become a token."""
    return lambda vision: (tiles * (vision.patches + 1), tiles * (vision.patches // 4))


def _with_deepstack(vision: Vision) -> int:
    features = vision.values.items("deepstack_visual_indexes", int) or ()
    return vision.number("out_hidden_size", default=vision.text) * (1 + len(features))


# Attention, whole: the block's input, its norm and what goes out. Divided: queries, keys and values as one, and the
# result; those with rotary positions have queries and keys twice more, before and after they are turned.
_TURNED, _PLAIN = (3, 8), (3, 4)
_QWEN3 = _Kind(greatest=_by_pixels(_QWEN3_PIXELS), attention=_TURNED, frames=2, beside=1, out=_with_deepstack)
_KINDS: Mapping[str, _Kind] = {
    "qwen2_vl": _Kind(greatest=_by_pixels(_QWEN2_PIXELS), attention=_TURNED, frames=2),
    "qwen2_5_vl": _Kind(greatest=_by_pixels(_QWEN2_PIXELS), attention=_TURNED, mlp=3, frames=2),
    "qwen3_vl": _QWEN3,
    "qwen3_vl_moe": _QWEN3,
    "qwen3_5": _QWEN3,
    "qwen3_5_moe": _QWEN3,
    "gemma3": _Kind(greatest=_gemma3, attention=_PLAIN),
    "llava": _Kind(greatest=_llava, attention=_PLAIN),
    "llava_next": _Kind(greatest=_llava_next, attention=_PLAIN),
    "mistral3": _Kind(greatest=_mistral3, attention=_TURNED, mlp=3),
    # Its rotary positions are complex numbers of four bytes a part.
    "llama4": _Kind(greatest=_in_tiles(_LLAMA4_TILES), attention=(2, 12)),
    "internvl": _Kind(greatest=_in_tiles(_INTERNVL_TILES), attention=_PLAIN),
}
