"""What is checked of a sweep before its runs are queued: the first point in full, of the others what differs."""

from collections.abc import Mapping, Sequence

from django.utils.translation import gettext as _

from jobs.accounts.access import User
from jobs.accounts.privilege import check_privileged
from jobs.catalog.rules.rule import refused
from jobs.catalog.spec.parse import Problem
from jobs.catalog.spec.runspec import RunSpec
from jobs.cluster.ray_api import cluster_state
from jobs.models import Project
from jobs.runs.checks import (
    Check,
    check_cluster,
    check_data,
    check_launchable,
    check_lengths,
    check_model,
    on_cluster,
)
from jobs.sweeps.points import Point, at_point

_ROWS_DEPEND_ON = "rollout.max_prompt_tokens"  # the one knob that can leave no row to train on


def check_sweep(
    specs: Sequence[RunSpec],
    run_points: Sequence[Point],
    *,
    project: Project,
    user: User | None = None,
    secrets: Mapping[str, object] | None = None,
) -> list[Problem]:
    """Return why these points cannot be launched here and now; empty if nothing stands against them.

    Points differ in knobs alone, so model, data and reward are tried once; lengths and free resources for each.
    """
    problems = check_launchable(specs[0], project, user, secrets=secrets)
    if problems:
        return [
            at_point(problem, run_points[0]) if problem.field.startswith("knobs.") else problem for problem in problems
        ]
    facts = check_model(specs[0], project=project)[0]
    state = cluster_state()
    for spec, point in zip(specs[1:], run_points[1:], strict=True):
        checks = [*check_lengths(spec, facts), *check_cluster(spec, state)]
        ruled = [*check_privileged(spec, project, user), *refused(on_cluster(spec, state), say=_)]
        problems += [at_point(problem, point) for problem in ruled]
        problems += [at_point(_problem(check), point) for check in checks if check.state == "failed"]
    if not problems and _ROWS_DEPEND_ON in run_points[0]:
        shortest = min(range(len(run_points)), key=lambda place: float(run_points[place][_ROWS_DEPEND_ON] or 0))
        checks = check_data(specs[shortest], project=project)[1]
        problems += [at_point(_problem(check), run_points[shortest]) for check in checks if check.state == "failed"]
    return problems


def _problem(check: Check) -> Problem:
    return Problem(field=check.field, message=check.text)
