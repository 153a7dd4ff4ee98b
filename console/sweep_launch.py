"""Launch a sweep: the same for the page and for the API."""

from collections.abc import Mapping
from datetime import datetime

from django.contrib.auth.models import AbstractBaseUser

from jobs.catalog.spec.parse import SpecInvalid
from jobs.models import Project, Run, Study
from jobs.processes import tasks
from jobs.runs.environment import split_secrets
from jobs.sweeps.checks import check_sweep
from jobs.sweeps.sweeps import create_study, plan_study, study_made_before


def launch_sweep(
    *,
    spec: object,
    sweep: object,
    project: Project,
    user: AbstractBaseUser,
    idempotency_key: str | None,
    now: datetime,
    secrets: Mapping[str, str] | None = None,
) -> tuple[Study, bool]:
    """Queue a run for each point, all or none; return the sweep, and True unless its key had made it before.

    Values of secrets are values as `secrets`, or with the spec (jobs.runs.environment.split_secrets).
    As many runs are submitted as may be live at once; admission lets the others follow.
    Raises: SpecInvalid, fields of the sweep beginning with `sweep.`; KeyReused, the key has made another one.
    """
    spec, values = split_secrets(spec)
    values |= secrets or {}
    base, plan, points, specs = plan_study(spec=spec, sweep=sweep)
    if not study_made_before(project=project, idempotency_key=idempotency_key):
        problems = check_sweep(specs, points, project=project, user=user, secrets=values)
        if problems:
            raise SpecInvalid(problems)
    study, is_new = create_study(
        project=project,
        name="",
        spec=base,
        knobs=plan.knobs_json(),
        method=plan.method,
        num_runs=plan.num_runs,
        max_concurrent=plan.max_concurrent,
        seed=plan.seed,
        user=user,
        idempotency_key=idempotency_key,
        now=now,
        secrets=values,
    )
    if is_new:
        for run_id in run_ids(study)[: study.max_concurrent]:
            tasks.enqueue(tasks.submit, run_id=run_id)
    return study, is_new


def run_ids(study: Study) -> list[str]:
    """Return the sweep's runs in the order of its points."""
    rows = Run.objects.filter(study=study).order_by("attempts__pk").values_list("pk", flat=True)
    return list(dict.fromkeys(rows))  # a run that went on has several attempts
