"""What a project's finished runs say of the planner, by the kind of device that they were on, and taking it over.

    for kind in calibrations(project, user=user, state=cluster_state()): ...
    apply(project, "h200-sxm", user=user, state=cluster_state(), today=today)

Each of the newest runs that finished is planned on what it ran on, with the lengths that it measured, and held against
its median seconds (jobs.planner.calibration). A run that says nothing of the planner is left out, and counted with the
reason: that too is an answer. What is taken over counts for plans on that kind of device alone
(jobs.planning.settings).
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date

from django.contrib.auth.models import AbstractBaseUser
from django.utils.translation import gettext as _

from jobs.accounts.access import User
from jobs.catalog.accelerator import Accelerator
from jobs.cluster.ray_api import ClusterState
from jobs.models import Attempt, Project, Run
from jobs.planner.calibration import CALIBRATED, Calibration, FinishedRun, Proposal, calibrate
from jobs.planner.constant import Constants
from jobs.planner.estimate import estimate
from jobs.planner.read.context import Workload
from jobs.planner.result import JobInvalid
from jobs.planning.plan_vs_measured import RunMeasurements, read_measured
from jobs.planning.policy_model import PlanRefused
from jobs.planning.question import PlannerQuestion
from jobs.planning.run_plan import question_of
from jobs.planning.settings import MeasuredConstant, constants_of, constants_without, keep_calibration, measured_on

MAX_RUNS = 40
"""The newest runs that are looked at: it takes some ten milliseconds each."""
LEAST_STEPS = 3
"""Steps after the first one that a median is taken of."""
_SHORTEST, _LONGEST = 1e-6, 1e8  # seconds of a phase; what a trainer says may be anything


class NothingToTake(ValueError):
    """Nothing is proposed for a kind of device; the text says so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KindCalibration:
    """What the runs on one kind of device say. `present`: the constants that count there now; `taken`: those of them
    that were measured before; `on`: the day of that."""

    accelerator: Accelerator
    num_runs: int
    calibration: Calibration
    present: Constants
    taken: tuple[str, ...]
    on: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibrations:
    """`kinds`: the kind with most runs first; `left_out`: why a run says nothing -> how many."""

    kinds: tuple[KindCalibration, ...]
    left_out: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunWithPlan:
    """A run that can be held against its plan."""

    accelerator: Accelerator
    finished: FinishedRun


class _NotComparable(Exception):
    """A run that says nothing of the planner; the text is why."""


def calibrations(project: Project, *, user: User, state: ClusterState) -> Calibrations:
    """Return what the project's finished runs say, by kind of device. `state`: the cluster as it is now."""
    by_kind, left_out = planned_runs(project, user=user, state=state)
    kinds = [of_kind(project, planned) for planned in sorted(by_kind.values(), key=len, reverse=True)]
    return Calibrations(kinds=tuple(kinds), left_out=tuple(Counter(left_out.values()).most_common()))


def planned_runs(
    project: Project, *, user: User, state: ClusterState
) -> tuple[dict[str, list[RunWithPlan]], dict[str, str]]:
    """Return the newest finished runs that can be held against their plan, by accelerator; of the others why not."""
    by_kind: dict[str, list[RunWithPlan]] = {}
    left_out: dict[str, str] = {}
    for run in _finished(project):
        try:
            planned = _planned_run(run, user=user, state=state)
        except _NotComparable as nothing:
            left_out[run.pk] = str(nothing)
            continue
        by_kind.setdefault(planned.accelerator.id, []).append(planned)
    return by_kind, left_out


def apply(
    project: Project, accelerator: str, *, user: AbstractBaseUser, state: ClusterState, today: date
) -> KindCalibration:
    """Let plans for a kind of device use what runs on it say now, and return that.

    Raises: NothingToTake, PlanSettingsRefused.
    """
    kinds = calibrations(project, user=user, state=state).kinds
    kind = next((each for each in kinds if each.accelerator.id == accelerator), None)
    if kind is None:
        raise NothingToTake(
            _("No finished run on %(kind)s can be compared with the planner.") % {"kind": accelerator[:40]}
        )
    if not kind.calibration.values:
        text = _("Runs on %(kind)s suggest no better value.")
        raise NothingToTake(text % {"kind": kind.accelerator.label})
    keep_calibration(
        project=project,
        accelerator=accelerator,
        measured=dict(_taken(kind.calibration.proposals, is_host=kind.accelerator.is_host)),
        num_runs=kind.num_runs,
        actor=user,
        today=today,
    )
    return kind


def _taken(proposals: Iterable[Proposal], *, is_host: bool) -> Iterator[tuple[str, MeasuredConstant]]:
    """Yield what is kept of each constant that is proposed, or that runs confirm as it is."""
    for each in proposals:
        value, after = each.proposed, each.after
        if value is None:
            if not each.is_confirmed:
                continue
            value, after = each.present, each.before
        entry: MeasuredConstant = {"num_runs": len(each.runs), "before": each.before, "value": value, "after": after}
        if is_host and each.spread is not None:
            entry["spread"] = each.spread
        yield each.constant, entry


def _finished(project: Project) -> Sequence[Run]:
    runs = Run.objects.filter(project=project, state="finished", trashed_at=None).select_related("project")
    return list(runs.order_by("-ended_at", "-pk")[:MAX_RUNS])


def of_kind(project: Project, planned: Sequence[RunWithPlan]) -> KindCalibration:
    """Return what runs on one kind of device say."""
    accelerator = planned[0].accelerator
    present = constants_of(project, accelerator.id)
    neutral = constants_without(project, CALIBRATED)
    return KindCalibration(
        accelerator=accelerator,
        num_runs=len(planned),
        calibration=calibrate([each.finished for each in planned], neutral, present),
        present=present,
        taken=tuple(measured_on(project, accelerator.id)),
        on=project.calibrations.get(accelerator.id, {}).get("on", ""),
    )


def _planned_run(run: Run, *, user: User, state: ClusterState) -> RunWithPlan:
    """Return a run as it is held against its plan. Raises: _NotComparable."""
    if len({_place(attempt) for attempt in Attempt.objects.filter(run=run)}) > 1:
        raise _NotComparable(_("Its attempts ran on different devices."))
    measured = read_measured(run.pk)
    if measured.num_steps < LEAST_STEPS:
        raise _NotComparable(_("It reports the time of fewer than four steps."))
    try:
        unknown = question_of(run, user=user, state=state, measured=measured, workload=Workload(), reads=False)
        question = question_of(run, user=user, state=state, measured=measured, workload=_lengths(measured), reads=False)
        setting = _setting(unknown)
        estimate(question.job, question.constants)
    except PlanRefused as refused:
        raise _NotComparable(str(refused)) from refused
    except JobInvalid as invalid:
        raise _NotComparable(_("The planner has no layout for it.")) from invalid
    usual = {phase: seconds for phase, seconds in measured.seconds.items() if _SHORTEST < seconds < _LONGEST}
    finished = FinishedRun(run=run.pk, setting=setting, job=question.job, seconds=usual)
    return RunWithPlan(accelerator=question.fleet.accelerator, finished=finished)


def _place(attempt: Attempt) -> tuple[bool, tuple[tuple[str, float], ...]]:
    """Return what must be alike of all attempts of a run: the kinds of devices that there were for it."""
    kinds = {(row["accelerator"], row["gpus"]) for row in attempt.ran_on.get("nodes", ()) if row["gpus"] >= 1}
    return bool(attempt.num_gpus), tuple(sorted(kinds)) if attempt.num_gpus else ()


def _setting(question: PlannerQuestion) -> str:
    """Return what is equal for runs that the planner, not told of lengths, takes for the same."""
    time = estimate(question.job, question.constants).time
    parts = [f"{phase} {seconds.middle:.6g}" for phase, seconds in time.phases.items()]
    return f"{question.spec.algorithm}: {', '.join(parts)}"


def _lengths(measured: RunMeasurements) -> Workload:
    """Return what the run measured of its own data: what it generated is no error of a pace."""
    return Workload(
        mean_prompt=measured.mean_prompt,
        mean_response=measured.mean_response,
        reward_seconds=measured.seconds.get("reward", 0.0),
    )
