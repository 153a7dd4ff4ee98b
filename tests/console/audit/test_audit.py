"""The audit's page, API and export: who may see which rows, filters, pages by cursor, what changed."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import patch

import pytest
from django.contrib.auth.models import AbstractUser, User
from django.test import Client
from django.utils import timezone

from console.sign_in.api_token import make_token
from console.views.audit import FieldChange, changes
from jobs.accounts.audit import record
from jobs.accounts.audit_log import AuditFilter, AuditScope, audit_lines, audit_page
from jobs.accounts.origin import Origin, origin
from jobs.models import AuditEvent, Project
from tests.console.test_access_matrix import content
from tests.rows import make_project, make_run, make_user, signed_in

pytestmark = pytest.mark.django_db
ALL = AuditScope(None)
DAY = datetime(2026, 11, 20, 12, tzinfo=UTC)


def keep(verb: str, *, at: datetime = DAY, ip: str | None = None, token: int | None = None, **about: Any) -> AuditEvent:
    fields = {"actor": None, "object_type": "run", "object_id": "r-1", **about}
    held = origin.set(Origin(ip=ip, token_id=token, person=fields.pop("person", "")))
    try:
        with patch.object(timezone, "now", return_value=at):
            record(verb=verb, **fields)
    finally:
        origin.reset(held)
    return AuditEvent.objects.latest("pk")


def ids(**chosen: str) -> list[int]:
    return [row.pk for row in audit_page(ALL, AuditFilter(**chosen)).rows]


def test_each_filter_leaves_its_rows_newest_first() -> None:
    stop = keep("run.stop", person="ada", ip="192.0.2.7", token=3, after={"why": "Too slow"})
    later = keep("run.stop.all", at=DAY + timedelta(hours=3), ip="2001:db8::1", object_id="r-2", label="math 50%_off")
    signin = keep("signin.failed", at=DAY + timedelta(days=1), object_type="account", object_id="bob", label="bob")

    assert ids() == [signin.pk, later.pk, stop.pk]
    assert ids(person="ada") == [stop.pk]
    assert (ids(verb="run.stop"), ids(verb="run"), ids(verb="ru")) == ([stop.pk], [later.pk, stop.pk], [])
    assert (ids(object="r-2"), ids(object="account"), ids(object="run:r-1")) == ([later.pk], [signin.pk], [stop.pk])
    assert (ids(token="3"), ids(token="4")) == ([stop.pk], [])
    assert (ids(ip="192.0.2.7"), ids(ip="2001:0db8::1")) == ([stop.pk], [later.pk])
    assert (ids(text="too SLOW"), ids(text="50%_"), ids(text="slow math")) == ([stop.pk], [later.pk], [])
    assert ids(since="2026-11-20T15:00") == [signin.pk, later.pk]
    assert ids(until="2026-11-20") == [later.pk, stop.pk]
    assert ids(since="2026-11-20T13:00+01:00", until="2026-11-20T12:00:01Z", verb="run") == [stop.pk]


def test_pages_follow_each_other_without_a_gap_or_a_double_also_within_one_moment() -> None:
    for number in range(7):
        keep("run.stop", object_id=f"r-{number}")
    seen: list[int] = []
    cursor = ""
    while True:
        page = audit_page(ALL, AuditFilter(), cursor=cursor, limit=3)
        seen += [row.pk for row in page.rows]
        if not page.next:
            break
        cursor = page.next
        keep("run.create", at=DAY + timedelta(hours=1))  # what comes meanwhile stands before

    assert seen == sorted(AuditEvent.objects.filter(verb="run.stop").values_list("pk", flat=True), reverse=True)


@pytest.fixture
def team() -> Project:
    return make_project("team")


@pytest.fixture
def admin(team: Project) -> AbstractUser:
    return make_user("ada", project=team, role="admin")


def api(client: Client, **query: str) -> Any:
    return client.get("/api/audit", query)


def test_admins_read_their_projects_and_superusers_everything(team: Project, admin: AbstractUser) -> None:
    other, third = make_project("other"), make_project("third")
    second = make_project("second")
    for project in (second, third):
        project.membership_set.create(user=admin, role="admin" if project == second else "editor")  # type: ignore[attr-defined]
    for project in (team, other, second, third):
        make_run(project)
    root = make_user("root")
    User.objects.filter(pk=root.pk).update(is_superuser=True)
    root.refresh_from_db()
    limited = make_token(user=admin, name="ci", role="admin", project="second")[1]
    by_token = Client(headers={"Host": "localhost", "Authorization": f"Bearer {limited}"})

    def projects(client: Client, **query: str) -> set[str]:
        return {event["project"] for event in api(client, verb="run.create", **query).json()["events"]}

    assert projects(signed_in(admin)) == {"team", "second"}
    assert projects(signed_in(admin), project="second") == {"second"}
    assert projects(by_token) == {"second"}
    assert projects(signed_in(root)) == {"team", "other", "second", "third"}
    assert projects(signed_in(root), project="other") == {"other"}
    assert api(signed_in(admin), project="other").status_code == 404
    assert api(signed_in(admin), project="third").status_code == 403
    assert api(signed_in(make_user("eve", project=team, role="editor"))).status_code == 403


@pytest.mark.parametrize(
    ("query", "field", "sentence"),
    [
        ({"since": "yesterday"}, "since", "'yesterday' is not a time"),
        ({"until": "2026-13-01"}, "until", "is not a time"),
        ({"ip": "home"}, "ip", "'home' is not an address"),
        ({"token": "pw_abc"}, "token", "is not the number of a token"),
        ({"cursor": "7"}, "cursor", "'7' is not a cursor"),
        ({"cursor": f"{10**17 - 1}-1"}, "cursor", ""),
        ({"q": "\ud800"}, "", ""),
    ],
)
def test_a_filter_that_cannot_be_read_is_refused_in_a_sentence(
    admin: AbstractUser, query: dict[str, str], field: str, sentence: str
) -> None:
    client = signed_in(admin)
    if "q" in query:
        assert client.get("/audit?q=%ED%A0%80").status_code in (200, 422)
        return
    answer = api(client, **query)
    if sentence:
        assert answer.status_code == 422
        assert answer.json()["problems"][0]["field"] == field
        assert sentence in answer.json()["problems"][0]["message"]
    assert client.get("/audit", query).status_code == answer.status_code
    if field != "cursor":
        assert client.get("/audit.jsonl", query).status_code == 422


def test_the_page_shows_who_what_and_what_changed_and_links_to_it(team: Project, admin: AbstractUser) -> None:
    run = make_run(team, user=admin)
    client = signed_in(admin)
    client.patch(f"/api/runs/{run.pk}", json.dumps({"note": "<b>seen</b>"}), content_type="application/json")

    page = client.get("/audit", {"object": run.pk}).content.decode()
    none = client.get("/audit", {"person": "nobody"}).content.decode()

    assert f'<a href="/runs/{run.pk}">{run.name}</a>' in page
    assert "<dt>note</dt>" in page
    assert "<ins>&lt;b&gt;seen&lt;/b&gt;</ins>" in page
    assert "run.change" in page
    assert 'href="/audit.jsonl?object=' in page
    assert "No entry matches these filters." in none


def test_admins_find_the_audit_in_settings_and_on_a_run_s_page(team: Project, admin: AbstractUser) -> None:
    run = make_run(team)
    of_run, of_project = f"/audit?project=team&amp;object=run:{run.pk}", "/audit?project=team"
    viewer = make_user("vic", project=team, role="viewer")

    for person, is_shown in ((admin, True), (viewer, False)):
        page, settings = (signed_in(person).get(url).content.decode() for url in (f"/runs/{run.pk}", "/settings"))
        assert (of_run in page, f'href="{of_project}"' in settings) == (is_shown, is_shown)
        assert ('href="/audit"' in settings) == is_shown


def test_the_export_has_every_row_of_the_filter_and_is_a_deed_itself(team: Project, admin: AbstractUser) -> None:
    for number in range(3):
        keep("run.stop", object_id=f"r-{number}", project=team, after={"名": "数学"})
    client = signed_in(admin)

    with patch("jobs.accounts.audit_log._EXPORT_ROWS", 2):
        answer = client.get("/audit.jsonl", {"verb": "run.stop", "project": "team"})
        rows = [json.loads(line) for line in content(answer).decode().splitlines()]

    assert [row["object_id"] for row in rows] == ["r-2", "r-1", "r-0"]
    assert rows[0] == api(client, verb="run.stop").json()["events"][0] | {"at": rows[0]["at"]}
    assert "audit-team.jsonl" in answer["Content-Disposition"]
    kept = AuditEvent.objects.get(verb="audit.export")
    assert (kept.after, kept.project, kept.actor) == ({"filter": {"verb": "run.stop"}}, team, admin)
    assert list(audit_lines(AuditScope((team.pk + 1,)), AuditFilter())) == []


def test_what_changed_is_told_field_by_field() -> None:
    before = {"name": "a", "knobs": {"x": 1, "y": 2}, "same": True}

    told = changes(before, {"name": "b", "knobs": {"x": 1, "y": [3]}, "same": True, "new": "n"})

    assert told == [
        FieldChange(field="name", before="a", after="b"),
        FieldChange(field="knobs.x", before="", after="1", is_same=True),
        FieldChange(field="knobs.y", before="2", after="[3]"),
        FieldChange(field="same", before="", after="true", is_same=True),
        FieldChange(field="new", before="", after="n"),
    ]
    assert changes(None, {"a": "x" * 999})[0].after.endswith("…")
