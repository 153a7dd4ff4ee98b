"""What the world has against the points of a sweep, with the real trial process on the bundled data and model."""

from typing import Any

import pytest

from jobs.models import Project
from jobs.sweeps import checks as sweep_checks
from jobs.sweeps.checks import check_sweep
from jobs.sweeps.sweeps import plan_study
from tests.jobs.runs.test_admission import cluster
from tests.rows import make_project

pytestmark = pytest.mark.django_db


@pytest.fixture
def project(monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.setattr(sweep_checks, "cluster_state", lambda: cluster(cpus=3))
    return make_project()


def checked(project: Project, spec: dict[str, Any], *knobs: dict[str, Any]) -> list[tuple[str, str]]:
    _base, _plan, points, specs = plan_study(spec=spec, sweep={"knobs": list(knobs)})
    return [(p.field, p.message) for p in check_sweep(specs, points, project=project)]


def test_points_that_can_run_have_nothing_against_them(project: Project) -> None:
    values = {"id": "optimizer.learning_rate", "values": [1e-4, 1e-3]}

    assert checked(project, {"hardware": {"policy_ranks": 1}}, values) == []


def test_a_point_the_cluster_cannot_hold_is_told_with_its_values(project: Project) -> None:
    values = {"id": "algorithm.kl_coefficient", "values": [0, 0.01]}  # above 0 it takes a reference worker more

    assert checked(project, {"hardware": {"layout": "split"}}, values) == [
        (
            "hardware.layout",
            "With kl_coefficient=0.01: Needs 4 CPUs, the cluster has 3: lower policy ranks, engines or CPUs per "
            "worker. The layout shared with policy ranks 2 needs 3.",
        )
    ]


def test_a_point_too_long_for_the_model_is_told_with_its_values(project: Project) -> None:
    values = {"id": "rollout.max_new_tokens", "values": [32, 500]}

    ((field, text),) = checked(project, {"hardware": {"policy_ranks": 1}}, values)

    assert field == "sweep.knobs.0.values"
    assert text.startswith("With max_new_tokens=500: Longest prompt plus longest response is 596 tokens")


def test_a_point_that_leaves_no_row_to_train_on_is_told(project: Project) -> None:
    values = {"id": "rollout.max_prompt_tokens", "values": [96, 2]}

    ((field, text),) = checked(project, {"hardware": {"policy_ranks": 1}}, values)

    assert field == "sweep.knobs.0.values"
    assert text.startswith("With max_prompt_tokens=2: All 3,686 prompts are longer than 2 tokens")


def test_what_stands_against_all_is_told_once(project: Project) -> None:
    spec = {"model": {"kind": "path", "id": "/nowhere"}, "hardware": {"policy_ranks": 1}}

    found = checked(project, spec, {"id": "train.seed", "values": [0, 1, 2]})

    assert found == checked(project, spec, {"id": "train.seed", "values": [0]}) != []
