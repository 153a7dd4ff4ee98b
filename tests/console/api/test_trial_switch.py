"""Who may try code before a launch, by PITWALL_TRIAL, by role, and by what the machine can keep code from."""

import json
from typing import Any

import pytest
from django.test import Client

from console.sign_in.api_token import make_token
from jobs.models import Project
from jobs.preflight import trial_switch
from jobs.preflight.sandbox import Confinement
from jobs.runs.checks import check_algorithm, check_reward, parse_for_cluster
from tests.rows import make_project, make_user

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("trials_here")]
CODE = {"reward": {"kind": "custom", "source": "def reward(p, c, a):\n    return 1.0"}}
FORMULAS = {"knobs": {"algorithm.source": "from jobs.engine.algorithms.grpo import PLUGIN\nBASE = 'grpo'"}}


@pytest.fixture
def project() -> Project:
    return make_project("pit")


def closed_in(monkeypatch: pytest.MonkeyPatch, level: Any) -> None:
    monkeypatch.setattr(trial_switch, "confinement", lambda: Confinement(level=level, lacks="no namespaces"))


def trial(project: Project, role: str, spec: dict[str, Any]) -> Any:
    _row, token = make_token(user=make_user(project=project, role=role), name="test")
    client = Client(headers={"Host": "localhost", "Authorization": f"Bearer {token}"})
    return client.post("/api/specs/reward-trial", json.dumps(spec), content_type="application/json")


@pytest.mark.parametrize("role", ["viewer", "editor", "admin"])
@pytest.mark.parametrize(
    ("switch", "level", "ray", "allowed"),
    [
        ("editors", "namespaces", "http://127.0.0.1:9", ("editor", "admin")),
        ("editors", "landlock", "https://ray.example", ("editor", "admin")),
        ("admins", "namespaces", "http://127.0.0.1:9", ("admin",)),
        ("off", "namespaces", "http://127.0.0.1:9", ()),
        ("editors", "none", "http://127.0.0.1:9", ("admin",)),
        ("editors", "none", "https://ray.example", ()),
        ("off", "none", "http://127.0.0.1:9", ()),
    ],
)
def test_who_may_try_code(
    project: Project,
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
    *,
    role: str,
    switch: str,
    level: str,
    ray: str,
    allowed: tuple[str, ...],
) -> None:
    settings.TRIAL, settings.RAY_ADDRESS = switch, ray
    closed_in(monkeypatch, level)

    answer = trial(project, role, CODE)

    if role in allowed:
        assert [row["reward"] for row in answer.json()["results"]] == [1.0] * 8
    else:
        assert answer.status_code == 403
        said = answer.json()["problems"][0]["message"]
        assert said.endswith(".")
        assert role == "viewer" or "code" in said
    ours = trial(project, role, {})
    assert ours.status_code == (403 if role == "viewer" else 200)


@pytest.mark.parametrize("role", ["editor", "admin"])
def test_what_is_not_tried_is_unknown_and_stops_no_launch(project: Project, settings: Any, role: str) -> None:
    settings.TRIAL = "off"
    user = make_user(project=project, role=role)

    checks = [
        *check_reward(parse_for_cluster(CODE), project=project, user=user),
        *check_algorithm(parse_for_cluster(FORMULAS), project=project, user=user),
    ]

    assert [(check.state, "PITWALL_TRIAL" in check.text) for check in checks] == [("unknown", True)] * 2


@pytest.mark.parametrize(
    ("level", "switch", "role", "says"),
    [
        ("namespaces", "editors", "editor", ""),
        ("none", "editors", "editor", "This machine cannot close trials in, so only admins"),
        ("none", "editors", "admin", "runs with the console&#x27;s rights"),
        ("namespaces", "off", "admin", "Trying code is switched off"),
    ],
)
def test_the_page_says_it_beside_the_buttons(
    project: Project, settings: Any, monkeypatch: pytest.MonkeyPatch, *, level: str, switch: str, role: str, says: str
) -> None:
    settings.TRIAL = switch
    closed_in(monkeypatch, level)
    client = Client(headers={"Host": "localhost"})
    client.force_login(make_user(project=project, role=role))

    page = client.get("/runs/new").content.decode()

    assert page.count("data-trial-note") == (2 if says else 0)
    assert page.count(says) == 2 or not says


@pytest.mark.parametrize(
    ("level", "ray", "says"),
    [
        ("namespaces", "http://127.0.0.1:9", ""),
        (
            "landlock",
            "http://127.0.0.1:9",
            "by Landlock and a filter of system calls, not by namespaces: no namespaces",
        ),
        ("none", "http://127.0.0.1:9", "so only admins of a project may try code (PITWALL_TRIAL=admins)"),
        ("none", "https://ray.example", "so nobody may try code"),
    ],
)
def test_the_operator_is_told_at_start(
    settings: Any, monkeypatch: pytest.MonkeyPatch, level: str, ray: str, says: str
) -> None:
    settings.RAY_ADDRESS = ray
    closed_in(monkeypatch, level)

    said = trial_switch.start_line()

    assert says in said if says else said == ""
