"""Off-boarding: what ends when an account is shut, what cannot go, whose runs become whose."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from console.sign_in.api_token import make_token
from console.sign_in.link import LinkUnusable, make_link, use_link
from jobs.accounts import people
from jobs.accounts.group_mapping import GroupsMisread, read_groups
from jobs.accounts.handover import hand_over
from jobs.accounts.people import PersonRefused
from jobs.accounts.who_can import NoSuchRole, who_can
from jobs.models import ApiToken, Attempt, AuditEvent, Membership, Project, Run, RunEvent, SigninLink
from jobs.runs.retry import queue_retries
from tests.attempts import end
from tests.rows import NOW, make_project, make_run, make_user, signed_in

pytestmark = pytest.mark.django_db


@pytest.fixture
def team() -> Project:
    return make_project("team")


@pytest.fixture
def root() -> Any:
    user = make_user("root")
    User.objects.filter(pk=user.pk).update(is_superuser=True)
    return user


@pytest.fixture
def mara(team: Project, root: Any) -> Any:
    return make_user("mara", project=team, role="editor")


def test_a_shut_account_lets_nobody_in_and_its_runs_go_on(mara: Any, root: Any, team: Project) -> None:
    run = make_run(team, state="running", user=mara)
    browser, other = signed_in(mara), signed_in(root)
    _row, text = make_token(user=mara, name="ci")
    api = Client(headers={"Host": "localhost", "Authorization": f"Bearer {text}"})
    link = make_link(user=mara, base_url="", now=NOW).rpartition("/")[2]
    assert (browser.get("/account").status_code, api.get("/api/account").status_code) == (200, 200)

    ended = people.deactivate(username="mara", actor=root, now=NOW)

    assert ended.as_json() == {"tokens": 1, "sessions": 1, "links": 1}
    assert browser.get("/account").status_code == 302
    assert api.get("/api/account").status_code == 401
    with pytest.raises(LinkUnusable, match="not known"):
        use_link(token=link, now=NOW)
    assert other.get("/account").status_code == 200
    run.refresh_from_db()
    assert (run.state, run.is_stop_requested) == ("running", False)
    told = AuditEvent.objects.get(verb="account.deactivate")
    assert (told.actor, told.object_id, told.after["tokens"]) == (root, "mara", 1)

    people.activate(username="mara", actor=root)
    assert browser.get("/account").status_code == 302, "a session does not come back"
    assert api.get("/api/account").status_code == 401, "nor does a token"


@pytest.mark.parametrize("gone", ["inactive", "no member", "viewer"])
def test_a_retry_uses_no_right_that_is_gone(mara: Any, root: Any, team: Project, gone: str) -> None:
    policy = {"retries": 2, "retry_on": "cluster"}
    run = make_run(team, state="running", user=mara, spec={"policy": policy})
    end(run, side="cluster")
    {
        "inactive": lambda: people.deactivate(username="mara", actor=root, now=NOW),
        "no member": lambda: people.leave_all(username="mara", actor=root),
        "viewer": lambda: Membership.objects.update(role="viewer"),
    }[gone]()

    assert queue_retries(now=NOW) == []

    assert Attempt.objects.filter(run=run).count() == 1
    said = RunEvent.objects.get(run=run, verb="retry_canceled").text
    assert said == "Its retry was canceled. mara, who started it, may no longer start runs in this project."


def test_a_run_that_was_handed_over_is_retried_in_the_new_name(mara: Any, root: Any, team: Project) -> None:
    make_user("ada", project=team, role="editor")
    run = make_run(team, state="running", user=mara, spec={"policy": {"retries": 2, "retry_on": "cluster"}})
    end(run, side="cluster")
    hand_over(project=team, username="mara", to="ada", actor=root)
    people.deactivate(username="mara", actor=root, now=NOW)

    assert len(queue_retries(now=NOW)) == 1


def test_the_last_superuser_and_the_last_admin_cannot_go(root: Any, team: Project) -> None:
    boss = make_user("boss", project=team, role="admin")
    Membership.objects.create(project=make_project("vision"), user=boss, role="admin")

    for change in (
        lambda: people.deactivate(username="root", actor=root, now=NOW),
        lambda: people.set_superuser(username="root", is_superuser=False, actor=root),
    ):
        with pytest.raises(PersonRefused, match="root is the last superuser"):
            change()
    for change in (
        lambda: people.deactivate(username="boss", actor=root, now=NOW),
        lambda: people.leave_all(username="boss", actor=root),
    ):
        with pytest.raises(PersonRefused, match=r"boss is the last admin of Team, Vision\. Make another member admin"):
            change()
    assert User.objects.filter(is_active=True).count() == 2

    deputy = make_user("deputy", project=team, role="admin")
    Membership.objects.create(project=Project.objects.get(slug="vision"), user=deputy, role="admin")
    assert people.leave_all(username="boss", actor=root) == ["team", "vision"]
    people.set_superuser(username="deputy", is_superuser=True, actor=root)
    people.set_superuser(username="root", is_superuser=False, actor=deputy)
    people.deactivate(username="root", actor=deputy, now=NOW)
    with pytest.raises(PersonRefused, match="root is not active"):
        people.set_superuser(username="root", is_superuser=True, actor=deputy)


def test_runs_are_handed_over_to_who_may_have_them(mara: Any, root: Any, team: Project) -> None:
    runs = [make_run(team, user=mara) for _ in range(3)]
    make_user("looks", project=team, role="viewer")
    make_user("ada", project=team, role="editor")

    for to, said in (("looks", "no active editor"), ("root", "no active editor"), ("mara", "already"), ("x", "no acc")):
        with pytest.raises(PersonRefused, match=said):
            hand_over(project=team, username="mara", to=to, actor=root)
    with pytest.raises(PersonRefused, match="owns no run or sweep 'r-other'"):
        hand_over(project=team, username="mara", to="ada", actor=root, ids=[runs[0].pk, "r-other"])
    one = hand_over(project=team, username="mara", to="ada", actor=root, ids=[runs[0].pk])
    rest = hand_over(project=team, username="mara", to="ada", actor=root)

    assert (one.runs, rest.runs) == (1, 2)
    assert Run.objects.filter(created_by__username="ada").count() == 3
    assert AuditEvent.objects.filter(verb="run.hand_over").count() == 2


def test_tokens_and_sessions_of_somebody_end_without_the_account(mara: Any, root: Any) -> None:
    keep = make_token(user=root, name="hers")[0]
    make_token(user=mara, name="a")
    make_token(user=mara, name="b")
    browser = signed_in(mara)
    make_link(user=mara, base_url="", now=NOW)

    assert people.revoke_tokens(username="mara", actor=root, now=NOW) == 2
    assert people.sign_out_everywhere(username="mara", actor=root) == 1

    assert browser.get("/account").status_code == 302
    assert list(ApiToken.objects.filter(revoked_at=None)) == [keep]
    assert not SigninLink.objects.exists()
    assert User.objects.get(username="mara").is_active


def test_who_can_do_what_counts_the_tokens_that_reach_a_project(mara: Any, root: Any, team: Project) -> None:
    vision = make_project("vision")
    Membership.objects.create(project=vision, user=mara, role="admin")
    make_token(user=mara, name="everywhere")
    make_token(user=mara, name="there", project="vision")
    make_token(user=mara, name="over", expires_at=NOW - timedelta(days=1))

    found = who_can(now=NOW)

    lines = [(right.username, right.project, right.role, right.tokens) for right in found]
    assert lines == [("mara", "team", "editor", 1), ("mara", "vision", "admin", 2), ("root", "", "", 0)]
    assert [right.project for right in who_can(now=NOW, words="ar MA", role="admin")] == ["vision"]
    assert [right.project for right in who_can(now=NOW, project=team)] == ["team"]
    with pytest.raises(NoSuchRole, match="no role 'king'"):
        who_can(now=NOW, role="king")


@pytest.mark.parametrize(
    "text",
    [
        "ml = team:editor; CN=ml,OU=x=vision:admin\nops=superuser",
        '{"ml": "team:editor", "CN=ml,OU=x": ["vision:admin"], "ops": ["superuser"]}',
    ],
)
def test_groups_are_read_as_a_list_and_as_json(text: str) -> None:
    mapping = read_groups(text)

    assert mapping.roles(["ml", "CN=ml,OU=x", "else"]) == {"team": "editor", "vision": "admin"}
    assert mapping.is_superuser(["ops"])
    assert not mapping.is_superuser(["ml"])
    assert mapping.projects == {"team", "vision"}


def test_of_several_groups_the_highest_role_counts() -> None:
    mapping = read_groups("a=t:editor; b=t:admin; c=t:viewer")

    assert mapping.roles(["a", "b", "c"]) == mapping.roles(["c", "b", "a"]) == {"t": "admin"}


@pytest.mark.parametrize(
    "text", ["ml", "ml=team", "ml=team:king", "=team:editor", "ml=Team X:editor", '{"a": 1}', "{a"]
)
def test_groups_that_say_nothing_are_refused_by_name(text: str) -> None:
    with pytest.raises(GroupsMisread, match=r"PITWALL_OIDC_GROUPS.*Write group=project:role"):
        read_groups(text)
