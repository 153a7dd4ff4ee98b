"""Settings: members of the project by its admins, projects and accounts by superusers; and who did it from where."""

import re
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from console.middleware.caller_address import CallerAddressMiddleware
from jobs.accounts.origin import origin
from jobs.models import AuditEvent, Membership, Project
from tests.rows import make_project, make_run, make_user

pytestmark = pytest.mark.django_db


def signed_in(user: Any) -> Client:
    client = Client()
    client.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
    return client


@pytest.fixture
def project() -> Project:
    return make_project("team")


@pytest.fixture
def admin(project: Project) -> Client:
    return signed_in(make_user("ada", project=project, role="admin"))


def members(project: Project) -> dict[str, str]:
    return dict(Membership.objects.filter(project=project).values_list("user__username", "role"))


def test_an_admin_adds_changes_and_removes_a_member(project: Project, admin: Client) -> None:
    make_user("bob")
    add, drop = reverse("change-member", args=["team"]), reverse("drop-member", args=["team"])

    added = admin.post(add, {"username": "bob", "role": "viewer"}, follow=True).content.decode()
    assert members(project) == {"ada": "admin", "bob": "viewer"}
    assert 'data-member="bob"' in added
    admin.post(add, {"username": "bob", "role": "editor"})
    assert members(project) == {"ada": "admin", "bob": "editor"}
    admin.post(drop, {"username": "bob"})

    assert members(project) == {"ada": "admin"}
    kept = AuditEvent.objects.order_by("pk").values_list("verb", "ip")
    assert list(kept) == [("member.set", "127.0.0.1"), ("member.set", "127.0.0.1"), ("member.remove", "127.0.0.1")]


@pytest.mark.parametrize(
    ("verb", "fields", "sentence"),
    [
        ("change-member", {"username": "ada", "role": "viewer"}, "this is the last one"),
        ("drop-member", {"username": "ada"}, "this is the last one"),
        ("change-member", {"username": "nobody", "role": "viewer"}, "There is no account &#x27;nobody&#x27;"),
        ("change-member", {"username": "ada", "role": "king"}, "There is no role &#x27;king&#x27;"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(
    project: Project, admin: Client, verb: str, fields: dict[str, str], sentence: str
) -> None:
    answer = admin.post(reverse(verb, args=["team"]), fields)

    assert answer.status_code == 422
    assert sentence in answer.content.decode()
    assert members(project) == {"ada": "admin"}


@pytest.mark.parametrize("path", ["members", "members/remove"])
def test_a_name_that_no_database_takes_is_not_looked_up(project: Project, admin: Client, path: str) -> None:
    with CaptureQueriesContext(connection) as asked:
        answer = admin.post(f"/settings/{project.slug}/{path}", {"username": "odd\0name", "role": "viewer"})

    assert answer.status_code == 422
    assert not [query for query in asked.captured_queries if "odd" in query["sql"]]  # PostgreSQL breaks at it


def test_others_see_the_members_and_no_button(project: Project, admin: Client) -> None:
    page = signed_in(make_user("bob", project=project, role="editor")).get(reverse("settings")).content.decode()

    assert 'data-member="ada"' in page
    assert reverse("change-member", args=["team"]) not in page
    assert reverse("new-project") not in page


def test_a_form_reaches_only_the_project_that_it_names(project: Project, admin: Client) -> None:
    make_user("bob", project=make_project("other"), role="admin")

    answer = admin.post(reverse("change-member", args=["other"]), {"username": "ada", "role": "admin"})

    assert answer.status_code == 404
    assert Membership.objects.filter(user__username="ada").count() == 1


@pytest.fixture
def root(project: Project) -> Client:
    user = make_user("root", project=project, role="viewer")
    User.objects.filter(pk=user.pk).update(is_superuser=True)
    return signed_in(user)


def test_a_superuser_makes_a_project_and_is_its_admin(root: Client) -> None:
    page = root.post(reverse("new-project"), {"name": "Math & Code"}, follow=True).content.decode()

    made = Project.objects.get(slug="math-code")
    assert members(made) == {"root": "admin"}
    assert "Math &amp; Code" in page


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"name": ""}, "is not a name of a project"),
        ({"name": "x" * 121}, "is not a name of a project"),
        ({"name": "数学"}, "No address name can be derived from"),
        ({"name": "A", "slug": "../etc"}, "cannot name a project in addresses"),
        ({"name": "A", "slug": "team"}, "There is a project &#x27;team&#x27; already"),
    ],
)
def test_a_project_that_cannot_be_is_not_made(root: Client, fields: dict[str, str], sentence: str) -> None:
    answer = root.post(reverse("new-project"), fields)

    assert answer.status_code == 422
    assert sentence in answer.content.decode()
    assert Project.objects.count() == 1


def test_a_new_account_signs_in_once_by_the_link_shown(root: Client) -> None:
    page = root.post(reverse("new-account"), {"username": "newcomer"}, follow=True).content.decode()
    shown = re.search(r'id="new-link">[^<]*(/signin/[^<]+)<', page)
    assert shown

    client = Client()
    first, second = client.post(shown[1]), Client().post(shown[1])

    assert first["Location"] == "/"
    assert second.status_code == 410
    assert "You are not a member of any project" in client.get("/").content.decode()
    assert AuditEvent.objects.filter(verb="account.create", object_id="newcomer", ip="127.0.0.1").exists()


@pytest.mark.parametrize(
    ("name", "sentence"),
    [("", "is not a user name"), ("a b", "is not a user name"), ("root", "an account &#x27;root&#x27; already")],
)
def test_an_account_that_cannot_be_is_not_made(root: Client, name: str, sentence: str) -> None:
    answer = root.post(reverse("new-account"), {"username": name})

    assert answer.status_code == 422
    assert sentence in answer.content.decode()
    assert User.objects.count() == 1


def test_the_audit_knows_the_address_of_who_deletes_a_run_by_the_api(project: Project, admin: Client) -> None:
    run = make_run(project, state="finished")
    forged = {"X-Forwarded-For": "10.1.1.1"}

    admin.delete(f"/api/runs/{run.pk}?confirm={run.name}", headers=forged, REMOTE_ADDR="192.0.2.7")

    assert AuditEvent.objects.get(verb="run.delete").ip == "192.0.2.7"


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("2001:db8::1", "2001:db8::1"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("fe80::1%eth0", "fe80::1"),
        ("unknown", None),
        ("", None),
        ("1.2.3.4, 5.6.7.8", None),
    ],
)
def test_an_address_is_kept_as_every_database_takes_it(rf: Any, given: str, kept: str | None) -> None:
    seen: list[str | None] = []

    def view(_request: Any) -> Any:
        seen.append(origin.get().ip)

    CallerAddressMiddleware(view)(rf.get("/", REMOTE_ADDR=given))

    assert seen == [kept]
    assert origin.get().ip is None
