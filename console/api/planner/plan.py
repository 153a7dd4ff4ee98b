"""The planner: what a spec needs, how long it takes, what would be better; and what a project tells it."""

from typing import Annotated, Literal

from django.http import HttpRequest
from django.utils import timezone
from ninja import Field, Router, Schema

from console.api.planner.schema import LayoutsIn, PlanAdviceOut, PlanIn, PlanLayoutsOut, PlanOut
from console.api.problem import EXPENSIVE, REFUSALS, RequestProblem
from console.api.visible import caller, project_for
from console.budget import expensive
from jobs.catalog.spec.parse import SpecInvalid
from jobs.cluster.ray_api import cluster_state
from jobs.models import Project
from jobs.planner.constant import Constant, shipped_constants
from jobs.planner.read.context import Workload
from jobs.planning.policy_model import PlanRefused
from jobs.planning.question import (
    PlannerQuestion,
    WhatIf,
    advice,
    estimate_of,
    hardware_of_recipe,
    layouts,
    question,
    sensitivities_of,
)
from jobs.planning.settings import PlanSettingsRefused, change_settings, constants_of, outdated
from jobs.runs.checks import parse_for_cluster

router = Router(tags=["planner"])


class PriceOut(Schema):
    """The price of an hour of one device, and the day on which it was set."""

    price: float
    on: str


class ConstantOut(Schema):
    """A number that physics does not give, from `low` to `high`; `is_own`: the project has set it."""

    name: str
    label: str
    value: float
    shipped: float
    low: float
    high: float
    unit: str
    evidence: Literal["measured", "assumed", "set"]
    is_own: bool
    source: str
    reason: str


class PlanSettingsOut(Schema):
    """What the project tells the planner. `outdated`: own values that no longer hold, with the reason; the shipped one
    counts in their place."""

    currency: str
    prices: dict[str, PriceOut]
    constants: list[ConstantOut]
    outdated: dict[str, str]


PlainNumber = Annotated[float, Field(strict=True)]
"""A number, and not what only can be taken for one: true, or a text."""


class PlanSettingsIn(Schema):
    """What to change; leave out what stays. null forgets a price, or takes a constant back to what is shipped."""

    model_config = {"extra": "forbid"}

    currency: str | None = Field(None, description="Three letters, as in USD")
    prices: dict[str, PlainNumber | None] | None = Field(None, description="Of a device hour, by accelerator")
    constants: dict[str, PlainNumber | None] | None = Field(None, description="Values by name")


@router.post("/{slug:project}/plan", response={200: PlanOut, **EXPENSIVE}, summary="Plan a spec")
@expensive
def plan_spec(request: HttpRequest, project: str, body: PlanIn) -> PlanOut:
    """Say whether the spec fits, what each phase needs, how long a step takes and what the run costs.

    Without `what_if` it is estimated on the cluster's own devices. Nothing is queued.
    """
    about = _question(request, project_for(request, project), body)
    try:
        return PlanOut.of(about, estimate_of(about))
    except PlanRefused as error:
        raise RequestProblem(422, str(error), field=error.field) from error


@router.post("/{slug:project}/plan/advice", response={200: PlanAdviceOut, **EXPENSIVE}, summary="What would be better")
@expensive
def plan_advice(request: HttpRequest, project: str, body: PlanIn) -> PlanAdviceOut:
    """Return changes of performance knobs that make the spec fit or faster, each estimated anew, and what moves the
    plan most: its largest parts, and the constants that it rests on."""
    about = _question(request, project_for(request, project), body)
    try:
        return PlanAdviceOut.of(advice(about), sensitivities_of(about))
    except PlanRefused as error:
        raise RequestProblem(422, str(error), field=error.field) from error


@router.post("/{slug:project}/plan/layouts", response={200: PlanLayoutsOut, **EXPENSIVE}, summary="Layouts of a spec")
@expensive
def plan_layouts(request: HttpRequest, project: str, body: LayoutsIn) -> PlanLayoutsOut:
    """Return the best layouts of the spec on all of the hardware, and why the others were rejected."""
    about = _question(request, project_for(request, project), body)
    try:
        return PlanLayoutsOut.of(layouts(about, goal=body.goal, limit=body.limit))
    except PlanRefused as error:
        raise RequestProblem(422, str(error), field=error.field) from error


@router.get("/{slug:project}/plan-settings", response={200: PlanSettingsOut, **REFUSALS}, summary="Planner settings")
def read_plan_settings(request: HttpRequest, project: str) -> PlanSettingsOut:
    """Return the project's prices, and every constant with its evidence."""
    return _settings(project_for(request, project))


@router.patch("/{slug:project}/plan-settings", response={200: PlanSettingsOut, **REFUSALS}, summary="Set them")
def change_plan_settings(request: HttpRequest, project: str, body: PlanSettingsIn) -> PlanSettingsOut:
    """Change prices and constants, all that is asked or nothing; admins only."""
    home = project_for(request, project, "admin")
    try:
        change_settings(
            project=home,
            currency=body.currency,
            prices=body.prices,
            constants=body.constants,
            actor=caller(request),
            today=timezone.localdate(),
        )
    except PlanSettingsRefused as error:
        raise SpecInvalid(list(error.problems)) from error
    return _settings(home)


def _question(request: HttpRequest, home: Project, body: PlanIn) -> PlannerQuestion:
    spec = parse_for_cluster(body.spec)
    what_if = body.what_if
    workload = body.workload
    try:
        return question(
            spec,
            project=home,
            user=caller(request),
            state=cluster_state(),
            what_if=None if what_if is None else WhatIf(**what_if.dict()),
            fallback=hardware_of_recipe(body.recipe, spec),
            config=body.config,
            workload=Workload(**workload.dict()) if workload is not None else None,
        )
    except PlanRefused as error:
        raise RequestProblem(422, str(error), field=error.field) from error


def _settings(home: Project) -> PlanSettingsOut:
    return PlanSettingsOut(
        currency=home.currency,
        prices={name: PriceOut(price=entry["price"], on=entry["on"]) for name, entry in home.prices.items()},
        constants=[_constant(each) for each in constants_of(home).all()],
        outdated=outdated(home.plan_constants),
    )


def _constant(each: Constant) -> ConstantOut:
    return ConstantOut(
        name=each.name,
        label=each.label,
        value=each.value,
        shipped=shipped_constants().get(each.name).value,
        low=each.low,
        high=each.high,
        unit=each.unit,
        evidence=each.evidence,
        is_own=each.is_changed,
        source=each.source,
        reason=each.reason,
    )
