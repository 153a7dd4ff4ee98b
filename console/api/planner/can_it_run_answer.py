"""What *Can it run?* of a language model is asked and answers, by API and, without a console, on the command line."""

from typing import Annotated, Literal

from pydantic import BaseModel, Field, JsonValue

from console.api.planner.estimate_schema import PlanInterval, PlanPool, PlanSensitivity
from console.api.planner.fit_schema import (
    HOST_GB,
    WITHIN_HOURS,
    FitAnswer,
    HostGb,
    WithinHours,
    answer_fields,
    bytes_of,
)
from console.api.problem import RequestProblem
from jobs.catalog.accelerator import find_accelerator
from jobs.catalog.sentence import sentence_of
from jobs.catalog.spec.runspec import ModelSource
from jobs.models import Project
from jobs.planner.can_it_run.headline import share_of
from jobs.planner.can_it_run.language_models import HardwareOption, PublishedRun, compare_hardware
from jobs.planner.can_it_run.plans import METHODS, Demand
from jobs.planner.result import JobInvalid
from jobs.planner.sensitivity import sensitivities
from jobs.planner.shapes.said import doubts
from jobs.planning.hardware_options import hardware_options
from jobs.planning.policy_model import PlanRefused, policy_shape, shape_of_config
from jobs.planning.search_pool import PlannerCall
from jobs.planning.settings import constants_of, currency_of, prices_of

MAX_OPTIONS = 8
_NUM_CONSTANTS = 5
_NUM_TERMS = 3
_Tokens = Annotated[int, Field(strict=True, ge=1, le=1_000_000)]
_Mean = Annotated[float, Field(strict=True, ge=0, le=1_000_000)]
_Count = Annotated[int, Field(strict=True, ge=1, le=1_000_000)]


class CanItRunIn(BaseModel):
    """What is asked. `model`: an id, a hub repository, or a folder (read for those who may launch), or the `config`.
    `devices`: a number to plan for; without it the fewest are looked for. The rest is what a step takes."""

    model_config = {"extra": "forbid"}

    model: str = Field("", max_length=200)
    config: dict[str, JsonValue] | None = None
    method: str = Field("grpo", description=", ".join(METHODS))
    on: list[str] = Field(min_length=1, max_length=MAX_OPTIONS, description="Accelerators, by id or name")
    devices: Annotated[int, Field(strict=True, ge=1, le=65536)] | None = None
    max_prompt: _Tokens = Demand().max_prompt
    max_response: _Tokens = Demand().max_response
    mean_prompt: _Mean = Field(0.0, description="Tokens; 0: not known")
    mean_response: _Mean = Field(0.0, description="Tokens; 0: not known")
    prompts: _Count = Field(Demand().prompts, description="Of a step with rollouts")
    samples_per_prompt: _Count = Demand().samples_per_prompt
    batch_size: _Count = Field(Demand().batch_size, description="Samples of a step without rollouts")
    within_hours: WithinHours = Field(None, description=WITHIN_HOURS)
    host_gb: HostGb = Field(None, description=HOST_GB)


class CanPublished(BaseModel):
    """A published configuration of this size and method, and what it says to the answer."""

    model: str
    device: str
    devices: int
    bearing: Literal["supports", "contradicts", "says nothing"]
    says: str
    source: str

    @classmethod
    def of(cls, published: PublishedRun) -> "CanPublished":
        """Return a published configuration as the API gives it."""
        row = published.row
        return cls(
            model=row.model,
            device=row.device,
            devices=row.num_devices,
            bearing=published.bearing,
            says=str(published.reason),
            source=row.source,
        )


class CanOption(FitAnswer):
    """The answer for one hardware. `devices`, `pools`, `band`, `terms` (the largest of the phase that binds), `seconds`
    by phase, `step` and the rest are of the layout that is asked for, recommended or needed, or of the nearest miss.
    `constants`: those that move it most."""

    label: str
    devices: int | None
    verdict: Literal["fits", "tight", "no"] | None
    phase: str
    band: float | None
    terms: dict[str, int]
    pools: list[PlanPool]
    seconds: dict[str, PlanInterval]
    step: PlanInterval | None
    cost_per_step: PlanInterval | None
    host_bytes: int | None
    disk_bytes: int | None
    share: float | None
    constants: list[PlanSensitivity]
    published: list[CanPublished]
    notes: list[str]

    @classmethod
    def of(cls, option: HardwareOption, constants: list[PlanSensitivity]) -> "CanOption":
        """Return an option as the API gives it."""
        verdict, at = option.verdict, option.verdict.at
        estimate = at.estimate if at is not None else None
        terms = estimate.binding.memory.terms if estimate is not None else {}
        largest = sorted(terms, key=lambda term: -terms[term])[:_NUM_TERMS]
        return cls(
            **answer_fields(verdict),
            label=option.accelerator.label,
            devices=at.num_devices if at is not None else None,
            verdict=estimate.verdict if estimate is not None else None,
            phase=estimate.phase if estimate is not None else "",
            band=estimate.band if estimate is not None else None,
            terms={str(term): terms[term] for term in largest},
            pools=[PlanPool.of(pool) for pool in estimate.pools] if estimate is not None else [],
            seconds={p: PlanInterval.of(s) for p, s in estimate.time.phases.items()} if estimate is not None else {},
            step=PlanInterval.of(estimate.time.step) if estimate is not None else None,
            cost_per_step=PlanInterval.of(option.cost_per_step) if option.cost_per_step is not None else None,
            host_bytes=estimate.host_bytes if estimate is not None else None,
            disk_bytes=estimate.checkpoint_bytes if estimate is not None else None,
            share=share_of(at) if at is not None else None,
            constants=constants,
            published=[CanPublished.of(each) for each in verdict.published],
            notes=[str(note) for note in estimate.notes] if estimate is not None else [],
        )


class CanItRunOut(BaseModel):
    """The answer: parameters, and every hardware, the cheapest (then fastest) that runs it first. `is_exact`: they are
    those of the model to the last one; `rests_on` says on what count and estimates rest where they are not. `note`: how
    the model was found, where that is an assumption."""

    model: str
    parameters: int
    active_parameters: int
    is_exact: bool
    rests_on: list[str]
    method: str
    currency: str
    note: str
    options: list[CanOption]


def answered(body: CanItRunIn, home: Project | None, *, may_read: bool, ask: PlannerCall) -> CanItRunOut:
    """Return the answer by the prices and constants of a project, or by those that are shipped; `ask` calls a function
    of the planner. Raises: RequestProblem."""
    if body.method not in METHODS:
        text = f"{body.method[:40]!r} is not a known method. Use one of {', '.join(METHODS)}."
        raise RequestProblem(422, text, field="method")
    try:
        on = list({each.id: each for each in map(find_accelerator, body.on)}.values())
    except LookupError as unknown:
        raise RequestProblem(422, sentence_of(unknown), field="on") from unknown
    if body.config is None and not body.model.strip():
        raise RequestProblem(422, "No model is named. Name one, or give its config.json as config.", field="model")
    try:
        if body.config is not None:
            shape, note = shape_of_config(body.config, name=body.model or "config"), ""
        else:
            kind: Literal["path", "hub"] = "path" if body.model.startswith(("/", "~", ".")) else "hub"
            shape, note = policy_shape(ModelSource(kind=kind, id=body.model), may_read=may_read)
    except PlanRefused as refused:
        field = "model" if refused.field == "model.id" else refused.field
        raise RequestProblem(422, str(refused), field=field) from refused
    _check_means(body)
    demand = Demand(**{name: getattr(body, name) for name in Demand.__dataclass_fields__})
    k = constants_of(home)
    try:
        options = hardware_options(
            ask,
            compare_hardware,
            shape,
            on,
            body.method,
            body.devices,
            demand=demand,
            prices=prices_of(home),
            constants=k,
            within_hours=body.within_hours,
            host_bytes=bytes_of(body.host_gb),
        )
    except JobInvalid as invalid:
        raise RequestProblem(422, str(invalid), field=invalid.field) from invalid
    told_of = []
    for option in options:
        at = option.verdict.at
        moved = sensitivities(at.job, k)[:_NUM_CONSTANTS] if at is not None and at.job is not None else ()
        told_of.append(CanOption.of(option, [PlanSensitivity.of(each) for each in moved]))
    return CanItRunOut(
        model=shape.name,
        parameters=shape.parameters,
        active_parameters=shape.active_parameters,
        is_exact=shape.is_exact,
        rests_on=list(doubts(shape)),
        method=body.method,
        currency=currency_of(home),
        note=note,
        options=told_of,
    )


def _check_means(body: CanItRunIn) -> None:
    """Refuse a mean that is longer than the longest. Raises: RequestProblem."""
    for part, mean, most in (
        ("prompt", body.mean_prompt, body.max_prompt),
        ("response", body.mean_response, body.max_response),
    ):
        if mean > most:
            text = f"A mean of {mean:,g} tokens is longer than the longest {part}, {most:,}. Use at most {most:,}, or"
            raise RequestProblem(422, f"{text} raise max_{part}.", field=f"mean_{part}")
