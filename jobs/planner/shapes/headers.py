"""What the headers of a checkpoint's safetensors files say of a model, which overrules what was counted of its config.

A config.json may carry a table `safetensors` as the hub's API gives it: `parameters` with the number of elements by
number type. The process that reads a model's config.json adds it where the weights are at hand.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from jobs.catalog.sentence import Sentence
from jobs.planner.shapes.config_values import ConfigValues
from jobs.planner.shapes.layer_shapes import LayerShape

if TYPE_CHECKING:
    from jobs.planner.shapes.model_shape import ModelShape

_PACKED = frozenset({"U8", "I8", "I16", "I32", "I64", "U16", "U32", "F4", "F6_E2M3", "F6_E3M2"})
_LIMIT = 10**15
_SHARE = 1e-3  # two counts as close as this say the same


@dataclass(frozen=True, slots=True)
class WeightHeaders:
    """Elements that a checkpoint holds; `is_packed`: several in one number, so that they cannot be told apart."""

    elements: int
    is_packed: bool


def read_headers(outer: ConfigValues) -> WeightHeaders | None:
    """Return what the table `safetensors` of a config says, None without one. Raises: ShapeUnreadable."""
    table = outer.table("safetensors")
    counted = table.table("parameters") if table is not None else None
    if counted is None or not counted.values:
        return None
    by_type: Mapping[str, int] = {kind: counted.count(kind, low=0, limit=_LIMIT) for kind in counted.values}
    total = sum(by_type.values())
    packed = sum(number for kind, number in by_type.items() if kind in _PACKED)
    return WeightHeaders(total, packed > _SHARE * total) if total else None


def overruled(shape: "ModelShape", headers: WeightHeaders | None) -> "ModelShape":
    """Return a shape whose parameters are those that the headers count.

    A count that the checkpoint confirms is exact, whatever it rested on; heads that are written twice and layers of
    multi-token prediction are told apart. Any other is taken from the headers: all layers are scaled alike.
    """
    if headers is None:
        return shape
    if headers.is_packed:
        text = "Its weights are packed: their headers do not say how many parameters they hold, its config was counted."
        return replace(shape, rests_on=(*shape.rests_on, Sentence(text)))
    own = headers.elements - shape.tower
    twice = shape.vocab * shape.hidden
    extra = {0, twice if shape.is_tied else 0, shape.mtp_parameters, shape.mtp_parameters + 2 * twice, -shape.tower}
    if any(abs(own - shape.parameters - each) <= _SHARE * own for each in extra):
        return replace(shape, is_exact=True, rests_on=(), is_confirmed=True)
    layers = sum(layer.total for layer in shape.layers)
    if own - (shape.parameters - layers) <= 0:
        return shape
    factor = (own - (shape.parameters - layers)) / layers
    scaled: dict[LayerShape, LayerShape] = {layer: _scaled(layer, factor) for layer in dict.fromkeys(shape.layers)}
    grown = tuple(scaled[layer] for layer in shape.layers)
    rest = own - (shape.parameters - layers) - sum(layer.total for layer in grown)
    said = Sentence(
        "The headers of its safetensors files count {held:,} parameters, its config {counted:,}: theirs are taken.",
        held=headers.elements,
        counted=shape.parameters + shape.tower,
    )
    return replace(
        shape,
        layers=grown,
        outside=shape.outside + rest,
        is_exact=False,
        rests_on=(*shape.rests_on, said),
        is_confirmed=True,
    )


def _scaled(layer: LayerShape, factor: float) -> LayerShape:
    parts = ("attention", "mlp", "experts", "replicated", "replicated_linear", "largest_matrix")
    return replace(layer, **{part: round(getattr(layer, part) * factor) for part in parts})
