"""Plans of a run take the mean lengths that an earlier run of the same model, data and caps measured: for seconds, not
for memory, and never the run's own."""

from dataclasses import replace
from typing import Any

import pytest
from django.contrib.auth.models import AbstractUser

from jobs.catalog.spec.parse import parse_spec
from jobs.models import Project
from jobs.planner.read.context import Workload
from jobs.planner.result import Estimate
from jobs.planning.joining import join_run
from jobs.planning.question import PlannerQuestion, WhatIf, estimate_of, question
from jobs.planning.run_plan import run_plan
from tests.measured_runs import AWAY, RESPONSE, measured_run, spec_of
from tests.rows import NOW, make_project, make_user

pytestmark = pytest.mark.django_db

LONG = 2 * RESPONSE
HERE = replace(AWAY, is_reachable=True)


@pytest.fixture
def project() -> Project:
    return make_project()


@pytest.fixture
def admin(project: Project) -> AbstractUser:
    return make_user(project=project, role="admin")


def asked(project: Project, spec: dict[str, Any], **more: Any) -> PlannerQuestion:
    project.refresh_from_db()
    return question(
        parse_spec(spec), project=project, user=None, state=AWAY, what_if=WhatIf(accelerator="h200-sxm"), **more
    )


def mean_response(about: PlannerQuestion) -> float:
    assert about.job.rollouts is not None
    return about.job.rollouts.lengths.mean_response


def seconds(plan: Estimate) -> float:
    return plan.time.phases["rollout"].middle


def test_a_plan_takes_the_lengths_of_the_newest_run_like_it(project: Project, admin: AbstractUser) -> None:
    before = estimate_of(asked(project, spec_of(256)))

    runs = [measured_run(project, admin, prompts=128, response=length) for length in (RESPONSE, LONG)]
    for run in runs:
        assert join_run(run.pk, state=HERE, now=NOW) is not None
    about = asked(project, spec_of(256))
    after = estimate_of(about)

    assert mean_response(about) == pytest.approx(LONG)
    assert f"Responses of {LONG:,.0f} tokens on average, as {runs[1].pk} measured" in after.notes[0]
    assert seconds(after) > 1.2 * seconds(before)
    assert after.pools == before.pools, "a policy may learn to answer longer: its memory is planned for the caps"
    with_mean = asked(project, spec_of(256), workload=Workload(mean_response=RESPONSE))
    assert mean_response(with_mean) == pytest.approx(RESPONSE)


@pytest.mark.parametrize(
    "other",
    [
        {"model": {"kind": "hub", "id": "Qwen/Qwen2.5-3B"}},
        {"data": {"kind": "hub", "id": "openai/gsm8k"}},
        {"knobs": {"rollout.max_new_tokens": 1024}},
    ],
    ids=["model", "data", "cap"],
)
def test_a_run_of_another_kind_says_nothing(project: Project, admin: AbstractUser, other: dict[str, Any]) -> None:
    join_run(measured_run(project, admin, response=LONG).pk, state=HERE, now=NOW)
    spec = spec_of(128)

    about = asked(project, {**spec, **other, "knobs": {**spec["knobs"], **other.get("knobs", {})}})

    assert mean_response(about) == 0


def test_a_run_is_not_held_against_its_own_lengths(project: Project, admin: AbstractUser) -> None:
    run = measured_run(project, admin, response=LONG)
    before = run_plan(run, user=admin, state=HERE)
    join_run(run.pk, state=HERE, now=NOW)
    run.refresh_from_db()

    after = run_plan(run, user=admin, state=HERE)

    assert [row.predicted for row in after.rows] == [row.predicted for row in before.rows]
    assert any(f"the plan assumes {RESPONSE:,.0f}" in note for note in after.notes)
