"""What people are told of a shape: its parameters, as exactly as they are known, and what they rest on."""

from collections.abc import Iterable

from jobs.catalog.sentence import Sentence
from jobs.planner.shapes.model_shape import ModelShape


def parameters_text(shape: ModelShape) -> str:
    """Return the parameters to the last digit, or about how many billions where they are not known exactly."""
    if shape.is_exact:
        return f"{shape.parameters:,}"
    billions = shape.parameters / 1e9
    return Sentence("about {billions} B", billions=f"{billions:.2g}" if billions < 100 else f"{billions:.0f}")


def doubts(shape: ModelShape) -> tuple[str, ...]:
    """Return what a plan with this shape rests on beside the shape itself, in sentences; none for a usual model."""
    said = list(shape.rests_on)
    if shape.rough_layers:
        text = "Memory and time of some layers are estimated as if they were attention: {kinds}."
        said.append(Sentence(text, kinds=", ".join(shape.rough_layers)))
    return tuple(said)


def doubts_of(shapes: Iterable[ModelShape]) -> tuple[str, ...]:
    """Return what a plan with these shapes rests on, each sentence once."""
    return tuple(dict.fromkeys(sentence for shape in shapes for sentence in doubts(shape)))
