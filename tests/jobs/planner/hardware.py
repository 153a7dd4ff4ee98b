"""A device for tests, and the models of the shipped recipes."""

import json
from pathlib import Path

from jobs.catalog.accelerator import find_accelerator
from jobs.catalog.spec.runspec import RunSpec
from jobs.planner.job import Fleet
from jobs.planner.read.context import Models
from jobs.planner.shapes.known import shape_of
from jobs.planner.shapes.model_shape import ModelShape, read_shape

H100 = find_accelerator("h100-sxm")

_STANDS_FOR = {  # what a recipe loads from a folder or another owner's repository, and whose shape that has
    "/models/DeepSeek-V3": "deepseek-ai/DeepSeek-V3",
    "/models/Qwen3-235B-A22B": "Qwen/Qwen3-235B-A22B",
}
_BUNDLED = Path(__file__).parents[3] / "jobs" / "engine" / "bundled"


def fleet(num_devices: int = 8, **changes: object) -> Fleet:
    """Return H100s, eight a node."""
    return Fleet(accelerator=H100, num_devices=num_devices, **changes)  # type: ignore[arg-type]


def shape_for(spec: RunSpec) -> ModelShape:
    """Return the shape of the model that a spec trains."""
    if spec.model.kind == "bundled":
        config = json.loads((_BUNDLED / spec.model.id / "config.json").read_text("utf-8"))
        return read_shape(config, name=spec.model.id)
    return shape_of(_STANDS_FOR.get(spec.model.id, spec.model.id))


def models_for(spec: RunSpec) -> Models:
    """Return the models of a spec, of which the one that it trains is named."""
    return Models(policy=shape_for(spec))
