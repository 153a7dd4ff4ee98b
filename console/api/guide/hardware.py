"""Accelerators and models that the planner knows."""

from django.http import HttpRequest
from ninja import Field, Router, Schema

from console.api.problem import REFUSALS
from jobs.catalog.accelerator import accelerators
from jobs.catalog.diffusion_model import diffusion_models
from jobs.catalog.model import models
from jobs.planner.shapes.known import shape_of, shape_of_diffusion
from jobs.planner.shapes.said import doubts


class AcceleratorOut(Schema):
    """An accelerator. `memory_bytes` as on the label, `usable_bytes` as frameworks report it; rates are dense."""

    id: str
    label: str
    vendor: str
    names: list[str]
    memory_bytes: int
    usable_bytes: int
    bandwidth: float = Field(description="Of memory, bytes/s")
    peak: dict[str, float] = Field(description="FLOP/s by number type")
    link: str
    link_bandwidth: float = Field(description="To a neighbor in the node, bytes/s one way")
    domain: int = Field(description="Devices that the link joins")
    pcie_bandwidth: float = Field(description="To the host, bytes/s one way")
    watts: float
    source: str


class AcceleratorsOut(Schema):
    """Every accelerator, by id."""

    accelerators: list[AcceleratorOut]


class ModelOut(Schema):
    """A model whose shape is known."""

    id: str
    label: str
    hub: list[str]
    parameters: int
    active_parameters: int
    layers: int
    experts: int
    max_positions: int
    is_exact: bool
    rests_on: list[str]
    source: str


class DiffusionModelOut(Schema):
    """A diffusion transformer whose shape is known; `encoders`: parameters of its text encoders and VAE."""

    id: str
    label: str
    hub: list[str]
    kind: str = Field(description="_class_name of its config.json")
    parameters: int
    encoders: dict[str, int]
    width: int
    height: int
    frames: int
    source: str


class ModelsOut(Schema):
    """Every known model, by id: language models, and diffusion transformers."""

    models: list[ModelOut]
    diffusion_models: list[DiffusionModelOut]


accelerators_router = Router(tags=["planner"])
models_router = Router(tags=["planner"])


@accelerators_router.get("", response={200: AcceleratorsOut, **REFUSALS}, summary="Accelerators")
def list_accelerators(request: HttpRequest) -> AcceleratorsOut:  # noqa: ARG001
    """Return what the planner knows of each accelerator."""
    return AcceleratorsOut(accelerators=[AcceleratorOut.model_validate(each) for each in accelerators().values()])


@models_router.get("", response={200: ModelsOut, **REFUSALS}, summary="Models")
def list_models(request: HttpRequest) -> ModelsOut:  # noqa: ARG001
    """Return the models whose config.json is known without asking a hub, with their exact counts."""
    return ModelsOut(
        models=[_model(model_id) for model_id in models()],
        diffusion_models=[_diffusion_model(model_id) for model_id in diffusion_models()],
    )


def _diffusion_model(model_id: str) -> DiffusionModelOut:
    model, shape = diffusion_models()[model_id], shape_of_diffusion(model_id)
    return DiffusionModelOut(
        id=model.id,
        label=model.label,
        hub=list(model.hub),
        kind=shape.kind,
        parameters=shape.parameters,
        encoders=dict(model.encoders),
        width=model.width,
        height=model.height,
        frames=model.frames,
        source=model.source,
    )


def _model(model_id: str) -> ModelOut:
    model, shape = models()[model_id], shape_of(model_id)
    return ModelOut(
        id=model.id,
        label=model.label,
        hub=list(model.hub),
        parameters=shape.parameters,
        active_parameters=shape.active_parameters,
        layers=shape.num_layers,
        experts=shape.experts,
        max_positions=shape.max_positions,
        is_exact=shape.is_exact,
        rests_on=list(doubts(shape)),
        source=model.source,
    )
