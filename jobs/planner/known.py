"""Shapes of the models that the catalog knows."""

from functools import cache

from jobs.catalog.diffusion_model import find_diffusion_model
from jobs.catalog.model import find_model
from jobs.planner.diffusion_shapes import DiffusionShape, read_diffusion_shape
from jobs.planner.shapes import ModelShape, read_shape


@cache
def shape_of(model_id: str) -> ModelShape:
    """Return the shape of a known model, by its id or hub repository. Raises: LookupError, naming the nearest."""
    model = find_model(model_id)
    return read_shape(model.config, name=model.id)


@cache
def shape_of_diffusion(model_id: str) -> DiffusionShape:
    """Return the shape of a known diffusion transformer, by its id or hub repository. Raises: LookupError."""
    model = find_diffusion_model(model_id)
    return read_diffusion_shape(model.config, name=model.id)
