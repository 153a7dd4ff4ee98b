"""The pages about people, their API and `manage.py account`: superusers shut accounts and hand over runs."""

import io
import json
import re
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.test import Client

from console.sign_in.api_token import make_token
from jobs.models import ApiToken, Identity, Membership, Project, Run
from tests.rows import make_project, make_run, make_user, signed_in

pytestmark = pytest.mark.django_db


@pytest.fixture
def team() -> Project:
    return make_project("team")


@pytest.fixture
def root(team: Project) -> Any:
    user = make_user("chief", project=team, role="admin")
    User.objects.filter(pk=user.pk).update(is_superuser=True)
    return User.objects.get(pk=user.pk)


@pytest.fixture
def site(root: Any) -> Client:
    return signed_in(root)


@pytest.fixture
def api(root: Any) -> Client:
    return Client(headers={"Host": "localhost", "Authorization": f"Bearer {make_token(user=root, name='x')[1]}"})


def text(answer: Any) -> str:
    return str(answer.content.decode())


def streamed(answer: Any) -> str:
    async def collect() -> bytes:
        return b"".join([part async for part in answer.streaming_content])

    return str(async_to_sync(collect)().decode())


def test_a_page_of_two_hundred_people_is_searched_and_turned(site: Client, team: Project) -> None:
    people = User.objects.bulk_create([User(username=f"person-{number:03}") for number in range(200)])
    Membership.objects.bulk_create([Membership(project=team, user=user, role="viewer") for user in people])

    first, last = text(site.get("/people")), text(site.get("/people?page=5"))
    found = text(site.get("/people?q=SON 07"))
    settings, searched = text(site.get("/settings")), text(site.get("/settings?member=-199"))

    assert first.count("data-person=") == 50
    assert 'data-person="chief"' in first
    assert last.count("data-person=") == 1
    assert found.count("data-person=") == 12
    assert settings.count("data-member=") == 25
    assert "members=2" in settings
    assert searched.count("data-member=") == 1
    assert text(site.get("/settings/access?role=admin")).count("<tr>") == 2
    assert "Page 3 of 3" in text(site.get("/settings/team/access?page=9"))


def test_a_superuser_shuts_an_account_and_hands_over_its_runs(site: Client, team: Project) -> None:
    mara = make_user("mara", project=team)
    make_user("ada", project=team)
    make_token(user=mara, name="ci")
    run = make_run(team, user=mara)
    shown = text(site.get("/people/mara"))
    assert "Deactivate the account" in shown
    assert "1 run" in shown

    refused = site.post("/people/mara/hand-over", {"project": "team", "to": "nobody"})
    site.post("/people/mara/hand-over", {"project": "team", "to": "ada"})
    for verb in ("superuser", "no-superuser", "revoke-tokens", "sign-out", "leave", "deactivate"):
        answer = site.post("/people/mara/change", {"verb": verb}, follow=True)
        assert answer.status_code == 200, verb

    assert "There is no account &#x27;nobody&#x27;" in text(refused)
    assert Run.objects.get(pk=run.pk).created_by.username == "ada"
    assert "mara is inactive" in text(answer)
    assert not User.objects.get(username="mara").is_active
    assert not Membership.objects.filter(user=mara).exists()
    site.post("/people/mara/change", {"verb": "activate"})
    assert User.objects.get(username="mara").is_active
    assert site.post("/people/mara/change", {"verb": "delete"}).status_code == 404
    assert site.get("/people/nobody").status_code == 404


def test_an_admin_of_a_project_hands_over_its_runs(team: Project) -> None:
    boss = signed_in(make_user("boss", project=team, role="admin"))
    run = make_run(team, user=make_user("mara", project=team))
    make_user("ada", project=team)

    refused = boss.post("/settings/team/hand-over", {"username": "mara", "to": "ada", "ids": "r-none"})
    boss.post("/settings/team/hand-over", {"username": "mara", "to": "ada", "ids": run.pk})

    assert "mara owns no run or sweep" in text(refused)
    assert Run.objects.get(pk=run.pk).created_by.username == "ada"


def test_a_first_link_is_renewed_only_for_who_has_never_signed_in(site: Client, api: Client) -> None:
    first = api.post("/api/accounts", json.dumps({"username": "mara"}), content_type="application/json").json()["link"]
    shown = text(site.post("/people/mara/link", follow=True))
    second = re.search(r'id="new-link">[^<]*(/signin/[^<]+)<', shown)
    assert second

    assert Client().get(first).status_code == 410
    assert Client().post(second[1]).status_code == 302
    assert site.post("/people/mara/link").status_code == 409
    assert api.post("/api/accounts/mara/link").status_code == 409
    assert api.post("/api/accounts/chief/link").status_code == 409


def test_who_cannot_go_is_told_why_on_the_page_and_by_the_api(site: Client, api: Client) -> None:
    refused = site.post("/people/chief/change", {"verb": "deactivate"})
    answer = api.patch("/api/accounts/chief", json.dumps({"is_active": False}), content_type="application/json")

    said = "chief is the last superuser of this console. Make another account superuser first."
    assert refused.status_code == 409
    assert said in text(refused)
    assert answer.status_code == 409
    assert answer.json()["problems"] == [{"field": "username", "message": said}]


def test_the_api_has_the_same_verbs(api: Client, team: Project) -> None:
    def send(method: str, path: str, body: Any = None) -> Any:
        return getattr(api, method)(path, json.dumps(body), content_type="application/json")

    made = send("post", "/api/accounts", {"username": "mara"})
    mara = User.objects.get(username="mara")
    Membership.objects.create(project=team, user=mara, role="editor")
    make_user("ada", project=team)
    make_run(team, user=mara)
    make_token(user=mara, name="ci")

    assert made.status_code == 201
    assert "/signin/" in made.json()["link"]
    read = api.get("/api/accounts/mara").json()
    assert (read["tokens"], read["projects"], read["has_password"]) == (1, {"team": "editor"}, False)
    assert api.get("/api/accounts?q=mar").json()["total"] == 1
    body = {"to": "ada", "project": "team"}
    assert send("post", "/api/accounts/mara/hand-over", body).json() == {"runs": 1, "sweeps": 0}
    assert api.delete("/api/accounts/mara/tokens").json() == {"ended": 1}
    assert api.delete("/api/accounts/mara/sessions").json() == {"ended": 0}
    assert api.delete("/api/accounts/mara/projects").json() == {"projects": ["team"]}
    assert send("patch", "/api/accounts/mara", {"is_active": False}).json()["is_active"] is False
    assert api.get("/api/accounts/nobody").status_code == 404
    assert send("post", "/api/accounts/mara/hand-over", {"to": "ada", "project": "\0"}).status_code == 404


def test_rights_are_exported_and_a_name_is_no_formula(api: Client, team: Project) -> None:
    make_user("@SUM", project=team, role="viewer")

    everywhere = api.get("/api/access").json()["rights"]
    table = streamed(api.get("/api/access/export.csv"))
    here = api.get("/api/projects/team/access?role=viewer").json()["rights"]

    assert [right["username"] for right in everywhere] == ["@SUM", "chief"]
    assert "'@SUM,True,False,,team,Team,viewer,False,0" in table
    assert [right["username"] for right in here] == ["@SUM"]
    assert api.get("/api/projects/team/access?role=king").status_code == 422


def test_the_command_lists_and_shuts(root: Any, team: Project, settings: Any) -> None:
    def account(*arguments: str) -> str:
        out = io.StringIO()
        call_command("account", *arguments, stdout=out)
        return out.getvalue()

    make_user("mara", project=team)
    make_token(user=User.objects.get(username="mara"), name="ci")

    assert "mara   active" in account("list")
    assert "1 token revoked" in account("deactivate", "mara")
    assert "mara  inactive" in account("list", "mar")
    assert not ApiToken.objects.filter(revoked_at=None).exists()
    assert "mara is active" in account("activate", "mara")
    assert "mara is admin of team" in account("role", "mara", "team", "admin")
    assert "runs this console" in account("superuser", "mara")
    assert "mara left team" in account("leave", "mara")
    with pytest.raises(CommandError, match="chief is the last admin of Team"):
        account("deactivate", "chief")
    with pytest.raises(CommandError, match=r"no project 'nowhere'\. Known: team"):
        account("role", "mara", "nowhere", "admin")
    with pytest.raises(CommandError, match="PITWALL_OIDC_ISSUER is not set"):
        account("connect", "mara", "s-1")
    settings.OIDC = type(settings.OIDC)(issuer="https://id.example", client_id="x")
    account("connect", "mara", "s-1")
    assert Identity.objects.get().subject == "s-1"
