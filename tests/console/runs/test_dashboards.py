"""Dashboards: kept for a person or a project, ordered and sized, shared by address, by the API."""

from typing import Any

import pytest
from django.test import Client

from jobs.models import Project
from tests.rows import make_project, make_user

pytestmark = pytest.mark.django_db
CHARTS = [{"metric": "reward/mean", "width": 2, "height": 1}, {"metric": "kl/reference", "width": 1, "height": 3}]


@pytest.fixture
def project() -> Project:
    return make_project("ours")


def member(project: Project, name: str, role: str = "editor") -> Client:
    client = Client()
    client.force_login(make_user(name, project=project, role=role))
    return client


def send(client: Client, method: str, dashboard_id: str = "", **body: Any) -> Any:
    path = f"/api/projects/ours/dashboards{'/' if dashboard_id else ''}{dashboard_id}"
    return getattr(client, method)(path, body or None, content_type="application/json")


def names(client: Client) -> dict[str, bool]:
    return {one["name"]: one["is_default"] for one in send(client, "get").json()["dashboards"]}


def test_a_dashboard_is_kept_changed_renamed_and_deleted(project: Project) -> None:
    ann = member(project, "ann", "viewer")
    made = send(ann, "post", name=" My  charts ", charts=CHARTS)
    assert made.status_code == 201
    own = made.json()
    assert (own["name"], own["charts"], own["is_shared"]) == ("My charts", CHARTS, False)
    assert (own["owner"], own["may_change"]) == ("ann", True)

    turned = [{**CHARTS[1], "width": 3}, CHARTS[0]]
    changed = send(ann, "patch", own["id"], name="Learning", charts=turned).json()

    assert (changed["name"], changed["charts"]) == ("Learning", turned)
    assert send(ann, "get", own["id"]).json()["charts"] == turned
    assert send(ann, "delete", own["id"]).status_code == 204
    assert send(ann, "get", own["id"]).status_code == 404


def test_own_ones_are_listed_for_nobody_else_but_read_by_who_has_the_address(project: Project) -> None:
    ann, bob = member(project, "ann"), member(project, "bob", "admin")
    own = send(ann, "post", name="Hers", charts=CHARTS).json()["id"]

    assert names(bob) == {}
    seen = send(bob, "get", own).json()
    assert (seen["owner"], seen["may_change"], seen["charts"]) == ("ann", False, CHARTS)
    assert send(bob, "patch", own, name="His").status_code == 403
    assert send(bob, "delete", own).status_code == 403
    stranger = Client()
    stranger.force_login(make_user("eve", project=make_project("elsewhere"), role="admin"))
    assert send(stranger, "get", own).status_code == 404


def test_the_projects_ones_are_for_editors_to_change_and_everybody_to_see(project: Project) -> None:
    ann, eve = member(project, "ann"), member(project, "eve", "viewer")
    shared = send(ann, "post", name="Ours", charts=CHARTS, is_shared=True).json()

    assert (shared["is_shared"], shared["owner"]) == (True, None)
    assert send(eve, "get", shared["id"]).json()["may_change"] is False
    assert send(eve, "post", name="Theirs", is_shared=True).status_code == 403
    assert send(eve, "patch", shared["id"], charts=[]).status_code == 403
    own = send(eve, "post", name="Mine").json()["id"]
    assert send(eve, "patch", own, is_shared=True).status_code == 403
    assert names(eve) == {"Mine": False, "Ours": False}

    taken = send(ann, "patch", shared["id"], is_shared=False).json()
    assert (taken["owner"], names(eve)) == ("ann", {"Mine": False})


def test_there_is_one_default_of_a_person_and_one_of_the_project(project: Project) -> None:
    ann = member(project, "ann")
    ids = {name: send(ann, "post", name=name, is_shared=name in "pq").json()["id"] for name in ("a", "b", "p", "q")}

    for name in ids:
        send(ann, "patch", ids[name], is_default=True)

    assert names(ann) == {"a": False, "b": True, "p": False, "q": True}
    send(ann, "patch", ids["q"], is_default=False)
    assert names(ann) == {"a": False, "b": True, "p": False, "q": False}


@pytest.mark.parametrize(
    ("body", "field", "says"),
    [
        ({"name": " "}, "name", "is not a name"),
        ({"name": "taken"}, "name", "There is a dashboard of the name “taken” already"),
        ({"charts": [{"metric": "a b"}]}, "charts.0.metric", "'a b' is not the name of a metric"),
        ({"charts": [CHARTS[0], CHARTS[0]]}, "charts.1.metric", "reward/mean is on the dashboard twice"),
        ({"charts": [{"metric": "x", "width": 4}]}, "charts.0.width", "The width of x is 4. Use 1 to 3."),
        ({"charts": [{"metric": "x", "height": 0}]}, "charts.0.height", "The height of x is 0. Use 1 to 3."),
        ({"charts": [{"metric": f"m{i}"} for i in range(61)]}, "charts", "at most 60 charts, this one has 61"),
    ],
)
def test_a_dashboard_that_makes_no_sense_is_refused_and_stays(
    body: dict[str, Any], field: str, says: str, project: Project
) -> None:
    ann = member(project, "ann")
    send(ann, "post", name="taken")
    own = send(ann, "post", name="free", charts=CHARTS).json()["id"]

    answers = [send(ann, "patch", own, **body), send(ann, "post", **{"name": "new", **body})]

    for answer in answers:
        (problem,) = answer.json()["problems"]
        assert (answer.status_code, problem["field"]) == (422, field)
        assert says in problem["message"]
    assert names(ann) == {"free": False, "taken": False}
    assert send(ann, "get", own).json()["charts"] == CHARTS
