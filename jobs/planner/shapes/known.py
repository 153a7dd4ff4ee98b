"""Shapes of the models that the catalog knows."""

from functools import cache

from jobs.catalog.diffusion_model import find_diffusion_model
from jobs.catalog.model import find_model
from jobs.catalog.sentence import Sentence
from jobs.planner.shapes.diffusion import DiffusionShape, read_diffusion_shape
from jobs.planner.shapes.model_shape import ModelShape, read_shape


@cache
def shape_of(model_id: str) -> ModelShape:
    """Return the shape of a known language model, by its id or hub repository. Raises: LookupError, naming the nearest,
    or saying that it is a diffusion transformer."""
    try:
        model = find_model(model_id)
    except LookupError:
        if (label := _diffusion_label(model_id)) is None:
            raise
        text = "{label} is a diffusion transformer, which no trainer here trains. Guide, Can it run? plans it."
        raise LookupError(Sentence(text, label=label)) from None
    return read_shape(model.config, name=model.id)


@cache
def shape_of_diffusion(model_id: str) -> DiffusionShape:
    """Return the shape of a known diffusion transformer, by its id or hub repository. Raises: LookupError."""
    model = find_diffusion_model(model_id)
    return read_diffusion_shape(model.config, name=model.id)


def _diffusion_label(model_id: str) -> str | None:
    try:
        return find_diffusion_model(model_id).label
    except LookupError:
        return None
