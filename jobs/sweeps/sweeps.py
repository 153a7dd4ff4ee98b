"""Sweeps: create all runs of a study or none, stop them all, change how many run at once. jobs.runs.admission holds
back.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.db import IntegrityError, transaction
from django.utils.translation import gettext as _

from jobs.accounts.audit import record
from jobs.catalog.spec.parse import parse_spec
from jobs.catalog.spec.runspec import RunSpec, to_json
from jobs.models import Project, Run, Study
from jobs.runs.launch import MAX_KEY_LENGTH, KeyReused, create_run, default_name
from jobs.runs.lifecycle import request_stop
from jobs.sweeps.plan import SweepPlan, check_max_concurrent, parse_plan
from jobs.sweeps.points import Point, point_specs, points

_PASSES = 3  # a run that the queue admits, or a retry that begins, while all are stopped is met by the next pass


def plan_study(*, spec: object, sweep: object) -> tuple[RunSpec, SweepPlan, tuple[Point, ...], list[RunSpec]]:
    """Return the base spec, the checked plan, its points, and the spec of each point; nothing is created.

    Raises: SpecInvalid with every problem of the spec, else of the sweep, else of its points.
    """
    base = parse_spec(to_json(spec) if isinstance(spec, RunSpec) else spec)
    plan = parse_plan(sweep, spec=base)
    run_points = points(plan)
    return base, plan, run_points, point_specs(base, run_points, name=base.name or default_name(base))


def create_study(
    *,
    project: Project,
    name: str,
    spec: RunSpec | Mapping[str, Any],
    knobs: Sequence[Mapping[str, Any]],
    method: str,
    num_runs: int | None,
    max_concurrent: int | None,
    seed: int,
    user: AbstractBaseUser | None,
    idempotency_key: str | None,
    now: datetime,
    secrets: Mapping[str, str] | None = None,
) -> tuple[Study, bool]:
    """Queue a run for each point of the sweep and return the study with True; with False if the key made it before.

    All runs are queued or none. `name` is the study's, and with a point's values the name of its run; "" for one after
    model and data. Raises: SpecInvalid (fields of the sweep are `sweep.…`); KeyReused if the key stands for another.
    """
    base = parse_spec(to_json(spec) if isinstance(spec, RunSpec) else spec)
    if name:
        base = parse_spec({**to_json(base), "name": name})
    sweep = {"knobs": knobs, "method": method, "num_runs": num_runs, "max_concurrent": max_concurrent, "seed": seed}
    base, plan, run_points, specs = plan_study(spec=base, sweep=sweep)
    key = (idempotency_key or "").replace("\0", "")[:MAX_KEY_LENGTH] or None
    earlier = _earlier(project, key, base, plan)
    if earlier is not None:
        return earlier, False
    try:
        with transaction.atomic():
            return _insert(project, base, plan, run_points, specs, user, key, now, secrets), True
    except IntegrityError:
        earlier = _earlier(project, key, base, plan)
        if earlier is None:
            raise
        return earlier, False


def study_made_before(*, project: Project, idempotency_key: str | None) -> bool:
    """Return True if the key has made a study here already, so that nothing need be checked again."""
    key = (idempotency_key or "").replace("\0", "")[:MAX_KEY_LENGTH]
    return bool(key) and Study.objects.filter(project=project, idempotency_key=key).exists()


def stop_study(*, study_id: str, user: AbstractBaseUser | None, now: datetime) -> int:
    """Stop all runs of the study: those in the queue leave it, the others save a checkpoint first.

    Returns how many this call has stopped; 0, and nothing is changed, if none was waiting or running. A run of it that
    somebody resumes later runs like any other.
    """
    num_stopped = 0
    for _pass in range(_PASSES):
        waiting = Run.objects.filter(study_id=study_id, state="queued").values_list("pk", flat=True)
        going = Run.objects.filter(study_id=study_id, state__in=("starting", "running")).values_list("pk", flat=True)
        ids = [*waiting.order_by("-created_at", "-pk"), *going]  # the queue first, else it would refill what stops
        if not ids:
            break
        num_stopped += sum(request_stop(run_id=run_id, user=user, now=now) for run_id in ids)
    if num_stopped:
        Study.objects.filter(pk=study_id).update(is_stop_requested=True)
        record(
            actor=user, verb="study.stop", object_type="study", object_id=study_id, after={"runs_stopped": num_stopped}
        )
    return num_stopped


def change_max_concurrent(*, study_id: str, value: object, user: AbstractBaseUser | None) -> Study:
    """Let more or fewer runs of the study be live at once; what runs goes on. Raises: SpecInvalid."""
    number = check_max_concurrent(value)
    with transaction.atomic():
        study = Study.objects.select_for_update().get(pk=study_id)
        before = study.max_concurrent
        if number != before:
            study.max_concurrent = number
            study.save(update_fields=["max_concurrent"])
            record(
                actor=user,
                verb="study.max_concurrent",
                object_type="study",
                object_id=study_id,
                before={"max_concurrent": before},
                after={"max_concurrent": number},
            )
    return study


def _earlier(project: Project, key: str | None, base: RunSpec, plan: SweepPlan) -> Study | None:
    if key is None:
        return None
    study = Study.objects.filter(project=project, idempotency_key=key).first()
    if study is None:
        return None
    # How many run at once may have been changed since, so it does not make a study another one.
    request = (to_json(base), plan.knobs_json(), plan.method, plan.num_runs, plan.seed)
    if (study.spec, study.knobs, study.method, study.num_runs, study.seed) != request:
        text = _("The idempotency key %(key)r already made sweep %(id)s from another request. Use a new key.")
        raise KeyReused(text % {"key": key, "id": study.pk})
    return study


def _insert(
    project: Project,
    base: RunSpec,
    plan: SweepPlan,
    run_points: Sequence[Point],
    specs: Sequence[RunSpec],
    user: AbstractBaseUser | None,
    key: str | None,
    now: datetime,
    secrets: Mapping[str, str] | None,
) -> Study:
    study = Study.objects.create(
        project=project,
        name=base.name or default_name(base),
        spec=to_json(base),
        knobs=plan.knobs_json(),
        method=plan.method,
        seed=plan.seed,
        num_runs=plan.num_runs,
        max_concurrent=plan.max_concurrent,
        idempotency_key=key,
        created_by_id=user.pk if user else None,
        created_at=now,
    )
    for point, spec in zip(run_points, specs, strict=True):
        run, _is_new = create_run(project=project, spec=spec, user=user, idempotency_key=None, now=now, secrets=secrets)
        Run.objects.filter(pk=run.pk).update(study=study, study_values=dict(point))
    after = {"name": study.name, "runs": plan.num_runs, "knobs": study.knobs}
    record(actor=user, verb="study.create", object_type="study", object_id=study.pk, after=after)
    return study
