"""API tokens: limited to a role, a project, a time; enforced in one place, whatever is asked."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from console.sign_in.api_token import TokenRefused, make_token
from jobs.accounts.access import NotAllowed, limit, limits_of, projects_of, require, role
from jobs.accounts.access import TokenLimits as Narrow
from jobs.models import ApiToken, AuditEvent, Membership, Run
from tests.rows import NOW, make_project, make_run, make_user

pytestmark = pytest.mark.django_db


class Owner:
    """An admin of two projects who makes tokens."""

    def __init__(self) -> None:
        self.first, self.second = make_project("first"), make_project("second")
        self.user: Any = make_user("ada", project=self.first, role="admin")
        Membership.objects.create(project=self.second, user=self.user, role="editor")
        self.session = Client()
        self.session.force_login(self.user, backend="django.contrib.auth.backends.ModelBackend")

    def api(self, **limits: Any) -> Client:
        text = make_token(user=self.user, name="t", **limits)[1]
        return Client(headers={"Authorization": f"Bearer {text}"})


@pytest.fixture
def owner() -> Owner:
    return Owner()


def said(answer: Any) -> str:
    return str(answer.json()["problems"][0]["message"])


def test_a_viewers_token_reads_and_launches_nothing(owner: Owner) -> None:
    run = make_run(owner.first, state="finished")
    client = owner.api(role="viewer")

    refused = client.post("/api/runs", {}, content_type="application/json")

    assert client.get(f"/api/runs/{run.pk}").status_code == 200
    assert refused.status_code == 403
    assert said(refused).startswith("This needs the role editor; this API token is limited to viewer.")
    assert Run.objects.count() == 1


def test_a_token_never_gives_more_than_its_person_has(owner: Owner) -> None:
    client = owner.api(role="admin")

    refused = client.put("/api/projects/second/members/ada", {"role": "admin"}, content_type="application/json")

    assert refused.status_code == 403
    assert "yours is editor" in said(refused)


def test_a_token_of_one_project_does_not_know_the_others(owner: Owner) -> None:
    run = make_run(owner.second, state="finished", spec={"name": "secret-plan"})
    client = owner.api(project="first")

    assert [p["slug"] for p in client.get("/api/projects").json()["projects"]] == ["first"]
    assert client.get(f"/api/runs/{run.pk}").status_code == 404
    assert client.get("/api/runs?project=second").status_code == 404
    assert b"secret-plan" not in client.get("/api/cluster").content


def test_the_role_shown_is_the_one_the_token_leaves(owner: Owner) -> None:
    found = owner.api(role="editor").get("/api/projects").json()["projects"]

    assert {p["slug"]: p["role"] for p in found} == {"first": "editor", "second": "editor"}


def test_an_expired_token_is_refused_and_told_so(owner: Owner) -> None:
    answer = owner.api(expires_at=NOW).get("/api/runs")

    assert answer.status_code == 401
    assert said(answer) == "This API token expired on 2026-11-20. Create a new one on the account page."
    assert owner.api(expires_at=timezone.now() + timedelta(days=1)).get("/api/runs").status_code == 200


@pytest.mark.parametrize(
    "limits", [{"role": "viewer"}, {"project": "first"}, {"expires_at": timezone.now() + timedelta(days=2)}]
)
def test_a_limited_token_cannot_make_itself_a_better_one(owner: Owner, limits: dict[str, Any]) -> None:
    client = owner.api(**limits)
    row = make_token(user=owner.user, name="other")[0]

    made = client.post("/api/tokens", {"name": "more"}, content_type="application/json")
    gone = client.delete(f"/api/tokens/{row.pk}")

    assert (made.status_code, gone.status_code, client.get("/api/tokens").status_code) == (403, 403, 403)
    assert not ApiToken.objects.filter(name="more").exists()
    row.refresh_from_db()
    assert row.revoked_at is None


def test_a_token_without_limits_makes_limited_ones(owner: Owner) -> None:
    body = {"name": "ci", "role": "editor", "project": "first", "days": 30}

    made = owner.api().post("/api/tokens", body, content_type="application/json").json()

    row = ApiToken.objects.get(name="ci")
    assert (made["role"], made["project"]) == ("editor", "first")
    assert row.expires_at is not None
    assert timedelta(days=29) < row.expires_at - timezone.now() < timedelta(days=31)


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"role": "owner"}, "role"),
        ({"project": "elsewhere"}, "project"),
        ({"days": 0}, "days"),
        ({"days": 9999}, "days"),
    ],
)
def test_a_token_that_cannot_be_is_refused_by_field(owner: Owner, more: dict[str, Any], field: str) -> None:
    make_project("elsewhere")

    answer = owner.api().post("/api/tokens", {"name": "x", **more}, content_type="application/json")

    assert answer.status_code == 422
    assert answer.json()["problems"][0]["field"] == field
    assert not ApiToken.objects.filter(name="x").exists()


def test_the_limits_travel_with_the_person_object_alone(owner: Owner) -> None:
    narrowed = User.objects.get(pk=owner.user.pk)
    limit(narrowed, Narrow(role="viewer", project_id=owner.first.pk))

    assert role(narrowed, owner.first) == "viewer"
    assert role(narrowed, owner.second) is None
    assert [p.slug for p in projects_of(narrowed)] == ["first"]
    with pytest.raises(NotAllowed):
        require(narrowed, owner.first, "editor")
    assert role(owner.user, owner.first) == "admin"
    assert limits_of(owner.user) == Narrow()


def test_a_token_for_a_project_one_is_not_in_is_not_made(owner: Owner) -> None:
    make_project("elsewhere")

    with pytest.raises(TokenRefused, match="no project 'elsewhere'"):
        make_token(user=owner.user, name="x", project="elsewhere")


def test_the_account_page_makes_a_limited_token_and_lists_its_limits(owner: Owner) -> None:
    fields = {"name": "notebook", "role": "viewer", "project": "second", "days": "30"}

    owner.session.post(reverse("create-token"), fields)
    page = owner.session.get(reverse("account")).content.decode()

    row = ApiToken.objects.get()
    assert (row.role, row.project, row.expires_at is not None) == ("viewer", owner.second, True)
    line = page.split(f'<tr data-token="{row.pk}">')[1].split("</tr>")[0]
    assert row.expires_at is not None
    for told in ("notebook", row.prefix, "Viewer", "Second", row.expires_at.date().isoformat()):
        assert told in line
    kept = AuditEvent.objects.get(verb="token.create")
    assert kept.after["role"] == "viewer"


@pytest.mark.parametrize("fields", [{"role": "owner"}, {"project": "elsewhere"}, {"days": "-1"}])
def test_the_page_refuses_what_is_not_in_its_lists(owner: Owner, fields: dict[str, str]) -> None:
    make_project("elsewhere")

    answer = owner.session.post(reverse("create-token"), {"name": "x", **fields})

    assert answer.status_code == 422
    assert "is not one of the choices" in answer.content.decode()
    assert not ApiToken.objects.exists()
