"""Can it run? for diffusion transformers: a model, hardware and a method in; whether it can be trained out."""

from typing import Annotated, Literal

from django.http import HttpRequest
from ninja import Field, Router, Schema
from pydantic import JsonValue

from console.api.planner.estimate_schema import PlanInterval, PlanPool
from console.api.planner.fit_schema import (
    HOST_GB,
    WITHIN_HOURS,
    FitAnswer,
    HostGb,
    WithinHours,
    answer_fields,
    bytes_of,
)
from console.api.problem import EXPENSIVE, RequestProblem
from console.api.visible import project_for
from console.budget import expensive
from jobs.catalog.accelerator import find_accelerator
from jobs.catalog.diffusion_model import find_diffusion_model
from jobs.models import Project
from jobs.planner.can_it_run.verdict import HardwareOption
from jobs.planner.diffusion.can_it_run import compare_for_diffusion
from jobs.planner.diffusion.job import Picture, stream_tokens
from jobs.planner.result import JobInvalid
from jobs.planner.shapes.config_values import ShapeUnreadable
from jobs.planner.shapes.diffusion import DiffusionShape, read_diffusion_shape
from jobs.planning.hardware_options import hardware_options
from jobs.planning.search_pool import PlannerCall, answer_apart
from jobs.planning.settings import constants_of, prices_of

router = Router(tags=["planner"])

_Whole = Annotated[int, Field(strict=True, ge=1)]


class DiffusionIn(Schema):
    """What is asked. `model` by id or hub repository, or the `config` of its transformer folder; what is left out is as
    usual for the model."""

    model_config = {"extra": "forbid"}

    model: str = Field("", max_length=200)
    config: dict[str, JsonValue] | None = None
    method: Literal["sft", "sft-lora", "grpo", "grpo-lora"] = "sft"
    on: list[str] = Field(min_length=1, max_length=8, description="Accelerators, by id or name")
    devices: Annotated[int, Field(strict=True, ge=1, le=65536)] | None = None
    width: _Whole | None = None
    height: _Whole | None = None
    frames: _Whole | None = None
    text_tokens: _Whole | None = None
    prompts: _Whole | None = None
    samples_per_prompt: _Whole | None = None
    batch_size: _Whole | None = None
    denoising_steps: _Whole | None = None
    trained_steps: _Whole | None = None
    zero: Literal[0, 1, 2, 3] = 3
    recomputes: bool = True
    within_hours: WithinHours = Field(None, description=WITHIN_HOURS)
    host_gb: HostGb = Field(None, description=HOST_GB)
    encoders: bool = Field(False, description="Text encoders and VAE stay on every device; of known models only")


class DiffusionOption(FitAnswer):
    """The answer for one hardware. `verdict`, `pool`, `seconds` and `notes` are of the layout on `devices`, or of the
    nearest miss; null where none was estimated."""

    devices: int | None
    verdict: Literal["fits", "tight", "no"] | None
    pool: PlanPool | None
    seconds: dict[str, PlanInterval]
    step: PlanInterval | None
    cost_per_step: PlanInterval | None
    notes: list[str]

    @classmethod
    def of(cls, option: HardwareOption) -> "DiffusionOption":
        """Return an option as the API gives it."""
        verdict = option.verdict
        estimate = verdict.at.estimate if verdict.at is not None else None
        return cls(
            **answer_fields(verdict),
            devices=option.num_devices,
            verdict=estimate.verdict if estimate is not None else None,
            pool=PlanPool.of(estimate.pools[0]) if estimate is not None else None,
            seconds={p: PlanInterval.of(s) for p, s in estimate.time.phases.items()} if estimate is not None else {},
            step=PlanInterval.of(estimate.time.step) if estimate is not None else None,
            cost_per_step=PlanInterval.of(option.cost_per_step) if option.cost_per_step is not None else None,
            notes=[str(note) for note in estimate.notes] if estimate is not None else [],
        )


class DiffusionOut(Schema):
    """The answer: exact parameters, tokens of a sample, and every hardware, the cheapest that runs it first."""

    model: str
    parameters: int
    latent_tokens: int
    text_tokens: int
    options: list[DiffusionOption]


@router.post(
    "/{slug:project}/plan/diffusion", response={200: DiffusionOut, **EXPENSIVE}, summary="Plan a diffusion model"
)
@expensive
def plan_diffusion(request: HttpRequest, project: str, body: DiffusionIn) -> DiffusionOut:
    """Say whether a diffusion transformer can be trained, on how few devices, what a phase needs and how long a step
    takes. A hypothetical plan: no trainer here trains these, and nothing is queued."""
    return answered(body, project_for(request, project), ask=answer_apart)


def answered(body: DiffusionIn, home: Project | None, *, ask: PlannerCall) -> DiffusionOut:
    """Return the answer by the prices and constants of a project, or by those that are shipped; `ask` calls a function
    of the planner. Raises: RequestProblem."""
    shape, picture = _shape_and_picture(body)
    try:
        on = [find_accelerator(name) for name in body.on]
    except LookupError as unknown:
        raise RequestProblem(422, str(unknown), field="on") from unknown
    try:
        latent, text = stream_tokens(shape, picture)
        options = hardware_options(
            ask,
            compare_for_diffusion,
            shape,
            on,
            body.method,
            body.devices,
            picture=picture,
            prices=prices_of(home),
            constants=constants_of(home),
            within_hours=body.within_hours,
            host_bytes=bytes_of(body.host_gb),
        )
    except JobInvalid as invalid:
        raise RequestProblem(422, str(invalid), field=invalid.field) from invalid
    return DiffusionOut(
        model=shape.name,
        parameters=shape.parameters,
        latent_tokens=latent,
        text_tokens=text,
        options=[DiffusionOption.of(option) for option in options],
    )


def _shape_and_picture(body: DiffusionIn) -> tuple[DiffusionShape, Picture]:
    """Return the shape and what it is trained on. Raises: RequestProblem."""
    usual, encoders = Picture(), 0
    try:
        if body.config is not None:
            shape = read_diffusion_shape(body.config, name=body.model or "config")
        else:
            model = find_diffusion_model(body.model)
            shape = read_diffusion_shape(model.config, name=model.id)
            usual = Picture(width=model.width, height=model.height, frames=model.frames)
            encoders = sum(model.encoders.values())
    except ShapeUnreadable as unreadable:
        raise RequestProblem(422, str(unreadable), field="config") from unreadable
    except LookupError as unknown:
        raise RequestProblem(422, str(unknown), field="model") from unknown
    if body.encoders and not encoders:
        text = "The sizes of text encoders and VAE are known of the catalog's models only. Leave encoders out."
        raise RequestProblem(422, text, field="encoders")
    steps = body.denoising_steps or usual.denoising_steps
    return shape, Picture(
        width=body.width or usual.width,
        height=body.height or usual.height,
        frames=body.frames or usual.frames,
        text_tokens=body.text_tokens or 0,
        prompts=body.prompts or usual.prompts,
        samples_per_prompt=body.samples_per_prompt or usual.samples_per_prompt,
        batch_size=body.batch_size or usual.batch_size,
        denoising_steps=steps,
        trained_steps=body.trained_steps or min(steps, usual.trained_steps),
        zero=body.zero,
        recomputes=body.recomputes,
        encoders=encoders if body.encoders else 0,
    )
