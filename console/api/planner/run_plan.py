"""A run's plan beside what it measured."""

from typing import Annotated, Literal

from django.http import HttpRequest
from ninja import Field, Query, Router, Schema

from console.api.planner.calibration import JoiningOut
from console.api.planner.estimate_schema import PlanInterval
from console.api.problem import EXPENSIVE, RequestProblem
from console.api.visible import caller, run_for
from console.budget import expensive
from jobs.cluster.ray_api import cluster_state
from jobs.planning.joining import joining_of
from jobs.planning.plan_vs_measured import PlannedRow
from jobs.planning.policy_model import PlanRefused
from jobs.planning.question import WhatIf
from jobs.planning.run_plan import Absent, Missing, RunPlan, run_plan

router = Router(tags=["runs", "planner"])


class HypotheticalHardware(Schema):
    """Hardware to plan for instead of the cluster's, if `accelerator` is given."""

    accelerator: str = Field("", max_length=200, description="An id or name of `GET /accelerators`")
    nodes: int = Field(1, ge=1, le=4096)
    devices_per_node: int = Field(8, ge=1, le=128)


class RunPlanRow(Schema):
    """Seconds of a phase ("step": the whole), or bytes of a role in a phase, or of one term of its states."""

    quantity: Literal["seconds", "bytes"]
    phase: str = Field(description='A phase, "step", "experience" for what a trainer tells as one, or ""')
    role: str
    term: str = Field(description='"" for all terms')
    predicted: PlanInterval | None
    measured: float | None = Field(description="Median seconds over steps; most bytes over ranks and steps")
    difference: float | None = Field(
        description="measured / the middle of what was predicted - 1, null if not comparable"
    )
    is_inside: bool | None = Field(description="Whether the predicted interval holds it")
    not_planned: Absent = Field(description='Why `predicted` is null, else ""')
    not_measured: Missing = Field(description='Why `measured` is null, else ""')

    @classmethod
    def of(cls, row: PlannedRow, plan: RunPlan) -> "RunPlanRow":
        """Return a line as the API gives it."""
        return cls(
            quantity=row.quantity,
            phase=row.phase,
            role=row.role,
            term=row.term,
            predicted=None if row.predicted is None else PlanInterval.of(row.predicted),
            measured=row.measured,
            difference=row.difference,
            is_inside=row.is_inside,
            not_planned=plan.why_not_planned(row),
            not_measured=plan.why_not_measured(row),
        )


class RunPlanOut(Schema):
    """`accelerator`, `num_devices`: what was planned for; `is_as_it_ran`: it is what the run went on. `source`: of what
    memory was measured; "process" is on the CPU, less what the process held before its model. `num_steps`: of which
    seconds are the median."""

    accelerator: str
    num_devices: int
    is_as_it_ran: bool
    source: Literal["device", "process", ""]
    num_steps: int
    notes: list[str]
    rows: list[RunPlanRow]
    joining: JoiningOut | None = Field(description="What the run did to the calibration, null before it did")


@router.get("/{run_id}/plan", response={200: RunPlanOut, **EXPENSIVE}, summary="Plan and measurement")
@expensive
def read_run_plan(
    request: HttpRequest, run_id: str, hypothetical: Annotated[HypotheticalHardware, Query(...)]
) -> RunPlanOut:
    """Return the plan of the run's spec beside what the run told; 422 where there is no plan, with the reason."""
    run = run_for(request, run_id)
    what_if = WhatIf(**hypothetical.dict()) if hypothetical.accelerator else None
    try:
        plan = run_plan(run, user=caller(request), state=cluster_state(), what_if=what_if)
    except PlanRefused as error:
        raise RequestProblem(422, str(error), field=error.field) from error
    return RunPlanOut(
        accelerator=plan.fleet.accelerator.id,
        num_devices=plan.fleet.num_devices,
        is_as_it_ran=plan.is_as_it_ran,
        source=plan.measured.source,
        num_steps=plan.measured.num_steps,
        notes=list(plan.notes),
        rows=[RunPlanRow.of(row, plan) for row in plan.rows],
        joining=None if (joining := joining_of(run)) is None else JoiningOut.model_validate(joining),
    )
