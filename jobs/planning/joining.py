"""A finished run joins the calibration of the kind of device that it was on, by itself.

    for run_id in waiting(now=now): ...        # the reconciler, every second: cheap
    join_run(run_id, state=cluster_state(), now=now)    # a task, once a run

What is taken is what jobs.planner.calibration makes of all newest runs, this one among them: the median over settings,
and where the planner has figures of its own, only what foretells runs that were left out better. Of the CPU it has
none, so that one run is enough there, with an interval that says so. Values that the project set stay as they are.
Each joining is kept in `Project.joined_runs`, with how far the run was from its plan before, when no value had seen it,
and after. A project may switch it off; who undoes it on one kind of device switches it off there.
"""

import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NotRequired, TypedDict

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.db import transaction

from jobs.accounts.audit import record
from jobs.catalog.spec.parse import parse_spec
from jobs.cluster.ray_api import ClusterState
from jobs.models import Project, Run
from jobs.planner.calibration import STEP, FinishedRun, Proposal
from jobs.planner.constant import Constants
from jobs.planner.estimate import estimate
from jobs.planning.calibration import KindCalibration, of_kind, planned_runs
from jobs.planning.earlier_lengths import MeasuredLengths, lengths_told
from jobs.planning.plan_vs_measured import read_measured, seconds_on_cpu
from jobs.planning.settings import MeasuredConstant, StoredCalibration, without_previous
from jobs.telemetry.attempt_spec import latest_spec_json

log = logging.getLogger(__name__)

MAX_KEPT = 50
"""The newest joinings that a project keeps."""
LOOKED_BACK = timedelta(minutes=10)
_TRIES = 5


class ChangedConstant(TypedDict):
    """A constant that a run changed: what it was (None: nothing was known on that kind of device) and is.
    `spread`: how far what it was may have been off."""

    was: float | None
    value: float
    spread: NotRequired[float]


class Joining(TypedDict):
    """What a run did to a calibration. `before` and `after`: how far its step is from the plan with the constants of
    before, which had not seen it, and of after, as a share (1: a factor of 2); None where there was no plan.
    `why_not`: why nothing was taken, ""; `num_settings`: different settings that the values rest on; `lengths`: what
    it says of the answers of further runs, None where it says nothing."""

    run: str
    at: str
    accelerator: str
    num_runs: int
    num_settings: int
    constants: dict[str, ChangedConstant]
    before: float | None
    after: float | None
    why_not: str
    lengths: NotRequired[MeasuredLengths | None]


class JoinedRuns(TypedDict):
    """What a project keeps, the newest first. `paused`: accelerators on which somebody undid it."""

    is_off: NotRequired[bool]
    paused: NotRequired[list[str]]
    joined: NotRequired[list[Joining]]


def _joined_runs(project: Project) -> JoinedRuns:
    joined_runs: JoinedRuns = project.joined_runs
    return joined_runs


def joins(project: Project) -> bool:
    """Return whether finished runs join by themselves."""
    return not _joined_runs(project).get("is_off", False)


def joinings(project: Project) -> Sequence[Joining]:
    """Return what finished runs did, the newest first."""
    return _joined_runs(project).get("joined", [])


def joining_of(run: Run) -> Joining | None:
    """Return what a run did, None if it did not join or that is no longer kept."""
    return next((each for each in joinings(run.project) if each["run"] == run.pk), None)


def set_joining(*, project: Project, is_on: bool, actor: AbstractBaseUser) -> None:
    """Let finished runs join by themselves, on every kind of device, or not."""
    with transaction.atomic():
        held = Project.objects.select_for_update().get(pk=project.pk)
        was = joins(held)
        held.joined_runs = {**held.joined_runs, "is_off": not is_on, "paused": []}
        held.save(update_fields=["joined_runs"])
        before, after = ({"joins_calibration": each} for each in (was, is_on))
        slug = project.slug
        record(actor=actor, verb="planner.set", object_type="project", object_id=slug, before=before, after=after)
    project.joined_runs = held.joined_runs


def waiting(*, now: datetime) -> list[str]:
    """Return finished runs of the last minutes that have not joined, and may."""
    ended = Run.objects.filter(state="finished", ended_at__gte=now - LOOKED_BACK, trashed_at=None)
    runs = ended.select_related("project").order_by("ended_at")
    return [run.pk for run in runs if joins(run.project) and joining_of(run) is None]


def join_run(run_id: str, *, state: ClusterState, now: datetime) -> Joining | None:
    """Let a finished run join; None where it has joined, may not, or the cluster does not answer.

    Runs that finish at once do not lose each other's: what changed meanwhile is read, and all is done again.
    """
    for _ in range(_TRIES):
        run = Run.objects.select_related("project", "created_by").filter(pk=run_id, state="finished").first()
        if run is None or not state.is_reachable or not joins(run.project) or joining_of(run) is not None:
            return None
        joining, stored = _made(run, state=state, now=now)
        if _kept(run.project, joining, stored):
            return joining
    log.warning("%s did not join a calibration: others did all the time", run_id)
    return None


def _made(run: Run, *, state: ClusterState, now: datetime) -> tuple[Joining, StoredCalibration | None]:
    """Return what the run does, and what is stored of its kind of device from then on, None for no change."""
    project = run.project
    by_kind, left_out = planned_runs(project, user=run.created_by or AnonymousUser(), state=state)
    planned = next((runs for runs in by_kind.values() if any(each.finished.run == run.pk for each in runs)), None)
    joining = Joining(
        run=run.pk,
        at=now.isoformat(),
        accelerator="",
        num_runs=0,
        num_settings=0,
        constants={},
        before=None,
        after=None,
        why_not=left_out.get(run.pk, ""),
        lengths=lengths_told(parse_spec(latest_spec_json(run)), read_measured(run.pk)),
    )
    if planned is None:
        return joining, None
    kind = of_kind(project, planned)
    own = next(each.finished for each in planned if each.finished.run == run.pk)
    accelerator = kind.accelerator.id
    taken = {} if accelerator in _joined_runs(project).get("paused", []) else _taken(kind, project.plan_constants)
    changed = {name: entry for name, entry in taken.items() if _is_news(kind.present, name, entry)}
    stored = _stored(project.calibrations.get(accelerator), changed, num_runs=kind.num_runs, now=now)
    joining["accelerator"], joining["num_runs"] = accelerator, kind.num_runs
    joining["num_settings"] = max((each.num_settings for each in kind.calibration.proposals), default=0)
    joining["constants"] = {name: _changed(kind, name, entry) for name, entry in changed.items()}
    joining["before"] = _missed(own, kind.present)
    joining["after"] = _missed(own, _with(kind.present, changed))
    return joining, stored if changed else None


def _changed(kind: KindCalibration, name: str, entry: MeasuredConstant) -> ChangedConstant:
    """Return what a constant was and is."""
    was = kind.present.get(name)
    change = ChangedConstant(was=was.value if _is_told(kind, name) else None, value=entry["value"])
    return change if was.spread == 1 else {**change, "spread": was.spread}


def _taken(kind: KindCalibration, own: Mapping[str, float]) -> dict[str, MeasuredConstant]:
    """Return what is taken of the constants that nobody in the project set."""
    proposals = (each for each in kind.calibration.proposals if each.constant not in own)
    made = (_of_host(each, kind.present) if kind.accelerator.is_host else _of_shipped(each) for each in proposals)
    return {name: entry for entries in made if entries for name, entry in entries.items()}


def _of_shipped(proposal: Proposal) -> dict[str, MeasuredConstant]:
    """Return what foretells runs better that were left out."""
    if proposal.proposed is None:
        return {}
    entry = MeasuredConstant(
        value=proposal.proposed, num_runs=len(proposal.runs), before=proposal.before, after=proposal.after
    )
    return {proposal.constant: entry}


def _of_host(proposal: Proposal, present: Constants) -> dict[str, MeasuredConstant]:
    """Return what the runs make of it, as nothing else is known there; at an end of what the constant takes, if they
    are beyond."""
    if proposal.fitted is None or proposal.spread is None:
        return {}
    constant = present.get(proposal.constant)
    value = min(max(proposal.fitted, constant.low), constant.high)
    entry = MeasuredConstant(
        value=value,
        num_runs=len(proposal.runs),
        before=proposal.before,
        after=proposal.after,
        spread=proposal.spread,
    )
    return {proposal.constant: entry}


def _is_news(present: Constants, name: str, entry: MeasuredConstant) -> bool:
    """Return whether an entry says something else than what counts now."""
    constant = present.get(name)
    now = (constant.value, constant.spread)
    pairs = zip(now, (entry["value"], entry.get("spread", 1.0)), strict=True)
    return not constant.is_changed or any(not math.isclose(*pair, rel_tol=1e-6) for pair in pairs)


def _is_told(kind: KindCalibration, name: str) -> bool:
    return kind.present.get(name).is_changed or not kind.accelerator.is_host


def _with(present: Constants, changed: Mapping[str, MeasuredConstant]) -> Constants:
    for name, entry in changed.items():
        present = present.measured({name: entry["value"]}, "", entry.get("spread", 1.0))
    return present


def _missed(run: FinishedRun, constants: Constants) -> float | None:
    """Return how far the run's step is from its plan; None where one of the two is not there."""
    made, measured = estimate(run.job, constants), run.seconds.get(STEP, 0.0)
    is_planned = not run.job.fleet.accelerator.is_host or STEP in seconds_on_cpu(made, constants)
    if not measured or not is_planned or made.time.step.middle <= 0:
        return None
    return math.expm1(abs(math.log(measured / made.time.step.middle)))


def _stored(
    before: StoredCalibration | None, changed: Mapping[str, MeasuredConstant], *, num_runs: int, now: datetime
) -> StoredCalibration:
    """Return what is stored; the joinings of one run after the other are one calibration, undone together."""
    goes_on = before is not None and before.get("is_joined", False)
    previous = before.get("previous") if before and goes_on else without_previous(before) if before else None
    constants = {**(before["constants"] if before else {}), **changed}
    return {
        "on": now.date().isoformat(),
        "num_runs": num_runs,
        "constants": constants,
        "is_joined": True,
        "previous": previous,
    }


def _kept(seen: Project, joining: Joining, stored: StoredCalibration | None) -> bool:
    """Keep it if nobody changed what it rests on meanwhile; False for what has to be made again."""
    with transaction.atomic():
        held = Project.objects.select_for_update().get(pk=seen.pk)
        if _basis(held) != _basis(seen):
            return False
        newest: Iterable[Joining] = [joining, *joinings(held)][:MAX_KEPT]
        held.joined_runs = {**held.joined_runs, "joined": newest}
        if stored is not None:
            held.calibrations[joining["accelerator"]] = stored
        held.save(update_fields=["joined_runs", "calibrations"])
    return True


def _basis(project: Project) -> tuple[object, ...]:
    return (project.joined_runs, project.calibrations, project.plan_constants)
