"""The plan of a run's spec, on hardware like that it ran on, beside what the run told.

    run_plan(run, user=user, state=cluster_state()) -> RunPlan

A run of the built-in trainer that took no GPU is planned on the CPU. Any other is planned on what it ran on, as it was
kept when its job was handed over (jobs.cluster.nodes); one that waits, on the cluster as it is now. Of an older one
nobody knows the devices: it is planned on hypothetical hardware, and on nothing by itself.
"""

from dataclasses import dataclass, replace
from typing import Literal

from django.utils.translation import gettext as _

from jobs.accounts.access import User
from jobs.catalog.accelerator import find_accelerator
from jobs.catalog.spec.parse import parse_spec
from jobs.cluster import nodes as ran_on
from jobs.cluster.ray_api import ClusterState, Node
from jobs.models import ENDED, Attempt, Run
from jobs.planner.job import Fleet
from jobs.planner.read.context import Workload
from jobs.planner.time.generation import mean_lengths
from jobs.planning.plan_vs_measured import (
    PlannedRow,
    RunMeasurements,
    SpecEstimate,
    plan_of_cpu,
    planned_rows,
    read_measured,
)
from jobs.planning.policy_model import PlanRefused
from jobs.planning.question import PlannerQuestion, WhatIf, estimate_of, question
from jobs.telemetry.attempt_spec import latest_spec_json

Missing = Literal["", "no_steps", "phase_not_told", "no_peaks", "role_not_told", "state_not_told"]
Absent = Literal["", "seconds_on_cpu", "not_planned"]
_ALIKE = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """The lines of a run. `fleet`: what was planned for; `is_as_it_ran`: that is what the run went on, not what
    what somebody chose or what the cluster has now; `notes`: what was assumed, in sentences."""

    rows: tuple[PlannedRow, ...]
    measured: RunMeasurements
    has_seconds: bool
    fleet: Fleet
    is_as_it_ran: bool
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
        return "seconds_on_cpu" if row.quantity == "seconds" and self.fleet.accelerator.is_host else "not_planned"


def run_plan(run: Run, *, user: User, state: ClusterState, what_if: WhatIf | None = None) -> RunPlan:
    """Return the plan of the run's latest attempt beside what the run told.

    `state`: the cluster as it is now. A model's config.json that was never read is read now, for people who may launch:
    that takes seconds. Raises: PlanRefused, where there is no plan.
    """
    measured = read_measured(run.pk)
    question = question_of(run, user=user, state=state, measured=measured, what_if=what_if, is_as_before=True)
    plan = _plan(question)
    return RunPlan(
        rows=planned_rows(plan, measured, frees_memory=question.spec.profile.marks == "memory"),
        measured=measured,
        has_seconds=plan.seconds is None or bool(plan.seconds),
        fleet=question.job.fleet,
        is_as_it_ran=what_if is None and _is_kept(run),
        notes=(*_of_lengths(question, measured), *plan.estimate.notes),
    )


def question_of(
    run: Run,
    *,
    user: User,
    state: ClusterState,
    measured: RunMeasurements,
    what_if: WhatIf | None = None,
    workload: Workload | None = None,
    reads: bool = True,
    is_as_before: bool = False,
) -> PlannerQuestion:
    """Return what the planner is asked about the run's latest attempt, on what it ran on unless `what_if` says else.

    `is_as_before`: by the constants and lengths that other runs had measured before it finished; else by the constants
    of now, and no lengths. `workload` and `reads` as in jobs.planning.question.question. Raises: PlanRefused.
    """
    attempt = Attempt.objects.filter(run=run, number=run.latest_attempt).select_related("run").first()
    spec = parse_spec(latest_spec_json(run))
    if attempt is not None and not attempt.num_gpus and spec.is_native:
        spec = spec.model_copy(update={"hardware": spec.hardware.model_copy(update={"device": "cpu"})})
    return question(
        spec,
        project=run.project,
        user=user,
        state=state if what_if is not None or attempt is None else _cluster(attempt, state, measured),
        what_if=what_if,
        workload=workload,
        reads=reads,
        takes_cpu=True,
        takes_lengths=is_as_before,
        before=run.pk if is_as_before else "",  # a plan is what was known before: nothing of its own
    )


def _plan(question: PlannerQuestion) -> SpecEstimate:
    made, is_host = estimate_of(question), question.fleet.accelerator.is_host
    return (
        plan_of_cpu(made, question.constants) if is_host else SpecEstimate(estimate=made, constants=question.constants)
    )


def _of_lengths(question: PlannerQuestion, measured: RunMeasurements) -> tuple[str, ...]:
    """Return what the run generated, where the plan uses something else: seconds and memory follow from it."""
    rollouts = question.job.rollouts
    if rollouts is None or not measured.mean_response:
        return ()
    _prompt, planned = mean_lengths(rollouts.lengths, question.constants)
    if abs(measured.mean_response / planned - 1) < _ALIKE:
        return ()
    text = _("Responses had %(measured)s tokens on average; the plan assumes %(planned)s.")
    return (text % {"measured": f"{measured.mean_response:,.0f}", "planned": f"{planned:,.0f}"},)


def _is_kept(run: Run) -> bool:
    return Attempt.objects.filter(run=run, number=run.latest_attempt).exclude(ran_on={}).exists()


def _cluster(attempt: Attempt, now: ClusterState, measured: RunMeasurements) -> ClusterState:
    """Return the cluster that an attempt found; the one of now for an attempt that waits or runs, or took no GPU.

    Raises: PlanRefused, where nobody knows on what the attempt ran.
    """
    try:
        earlier = ran_on.cluster_of(attempt)
    except ran_on.PlaceUnknown as unknown:
        text = _(
            "When this run started the cluster had %(kinds)s, and the run does not report which of them it used. "
            "Choose the hardware that it ran on."
        )
        raise PlanRefused("what_if", text % {"kinds": _(" and ").join(unknown.kinds)}) from unknown
    if earlier is None:
        if attempt.state in ENDED and attempt.num_gpus:
            text = _("The devices of this run were not stored. Choose the hardware that it ran on.")
            raise PlanRefused("what_if", text)
        return now
    return replace(earlier, nodes=tuple(_with_memory(node, measured.device_bytes) for node in earlier.nodes))


def _with_memory(node: Node, device_bytes: float) -> Node:
    """Return the node with the very accelerator that its devices are: of several that share Ray's name ("A100") the one
    whose memory the runner read."""
    if not node.accelerator or not device_bytes:
        return node
    try:
        return replace(node, accelerator=find_accelerator(node.accelerator, usable_bytes=int(device_bytes)).id)
    except LookupError:
        return node
