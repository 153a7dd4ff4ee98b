"""The plan of a run's spec, on hardware like that it ran on, beside what the run told.

    run_plan(run, user=user, state=cluster_state()) -> RunPlan

A run of the built-in trainer that took no GPU is planned on the CPU. Any other is planned on the cluster as it is now,
or on what somebody supposes: the kind of device that a run went on is not among what it tells.
"""

from dataclasses import dataclass, replace
from typing import Literal

from jobs.access import User
from jobs.attempt_spec import latest_spec_json
from jobs.catalog.runspec import RunSpec, parse_spec
from jobs.cluster import ClusterState
from jobs.models import Attempt, Run
from jobs.planned import Measured, Plan, PlannedRow, plan_of_bytes, planned_rows, read_measured
from jobs.planner.job import Fleet
from jobs.planning import Question, WhatIf, question, reckon

Missing = Literal["", "no_steps", "phase_not_told", "no_peaks", "role_not_told", "state_not_told"]
Absent = Literal["", "seconds_on_cpu", "not_planned"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """The lines of a run. `fleet`: what was planned for; `notes`: what was assumed, in sentences."""

    rows: tuple[PlannedRow, ...]
    measured: Measured
    has_seconds: bool
    fleet: Fleet
    notes: tuple[str, ...]

    def why_not_measured(self, row: PlannedRow) -> Missing:
        """Return why a line has no measured value, "" if it has one."""
        if row.measured is not None:
            return ""
        if row.quantity == "seconds":
            return "phase_not_told" if self.measured.seconds else "no_steps"
        if row.term:
            return "state_not_told"
        return "role_not_told" if self.measured.source else "no_peaks"

    def why_not_planned(self, row: PlannedRow) -> Absent:
        """Return why a line has no planned value, "" if it has one."""
        if row.predicted is not None:
            return ""
        return "seconds_on_cpu" if row.quantity == "seconds" and not self.has_seconds else "not_planned"


def run_plan(run: Run, *, user: User, state: ClusterState, what_if: WhatIf | None = None) -> RunPlan:
    """Return the plan of the run's latest attempt beside what the run told.

    A model's config.json that was never read is read now, for people who may launch: that takes seconds.
    Raises: PlanRefused, where there is no plan.
    """
    asked = question(
        _as_it_ran(run),
        project=run.project,
        user=user,
        state=state,
        what_if=what_if,
        takes_processor=True,
    )
    plan = _plan(asked)
    measured = read_measured(run.pk)
    return RunPlan(
        rows=planned_rows(plan, measured),
        measured=measured,
        has_seconds=plan.has_seconds,
        fleet=asked.fleet,
        notes=plan.estimate.notes,
    )


def _plan(asked: Question) -> Plan:
    made = reckon(asked)
    return plan_of_bytes(made) if asked.fleet.accelerator.is_host else Plan(estimate=made)


def _as_it_ran(run: Run) -> RunSpec:
    """Return the spec of the latest attempt; one of the built-in trainer that took no GPU says so."""
    spec = parse_spec(latest_spec_json(run))
    attempt = Attempt.objects.filter(run=run, number=run.latest_attempt).first()
    if attempt is None or attempt.num_gpus or not spec.is_native:
        return spec
    return replace(spec, hardware=replace(spec.hardware, device="cpu"))
