"""The audit's rows: what they say, that nothing changes or deletes them but their sweep, and that they outlive all."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.db import DatabaseError, connection, transaction
from django.utils import timezone

from jobs.accounts.audit import record, sweep
from jobs.accounts.origin import Origin, command_origin, origin
from jobs.models import AuditEvent, AuditSweep, Project, Run
from tests.rows import make_project, make_run, make_user

pytestmark = pytest.mark.django_db


def keep(verb: str = "run.stop", object_id: str = "r-1") -> AuditEvent:
    record(actor=None, verb=verb, object_type="run", object_id=object_id)
    return AuditEvent.objects.latest("pk")


def _sql(text: str) -> Callable[[], object]:
    def run() -> None:
        with connection.cursor() as cursor:
            cursor.execute(text)

    return run


@pytest.mark.parametrize(
    "tamper",
    [
        lambda: AuditEvent.objects.update(verb="run.create"),
        lambda: AuditEvent.objects.all().delete(),
        lambda: AuditEvent.objects.latest("pk").delete(),
        _sql("UPDATE jobs_auditevent SET ip = NULL"),
        _sql("DELETE FROM jobs_auditevent"),
        pytest.param(
            _sql(
                "INSERT OR REPLACE INTO jobs_auditevent (id, at, verb, object_type, object_id, actor_name, way, token, "
                "user_agent, object_label, project_slug) SELECT id, at, 'run.create', object_type, object_id, "
                "actor_name, way, token, user_agent, object_label, project_slug FROM jobs_auditevent"
            ),
            marks=pytest.mark.skipif(connection.vendor != "sqlite", reason="SQLite's alone"),
        ),
    ],
)
def test_the_database_refuses_to_change_or_delete_a_row(tamper: Callable[[], object]) -> None:
    keep()
    before = list(AuditEvent.objects.values())

    with pytest.raises(DatabaseError, match="rows of the audit"), transaction.atomic():
        tamper()

    assert list(AuditEvent.objects.values()) == before


def test_the_sweep_deletes_what_is_older_than_it_is_kept_and_says_so() -> None:
    keep("run.stop")
    now = timezone.now()

    assert sweep(now=now + timedelta(days=9), days=0) == 0
    assert sweep(now=now + timedelta(days=9), days=10) == 0
    assert sweep(now=now + timedelta(days=11), days=10) == 1

    left = AuditEvent.objects.get()
    assert (left.verb, left.after["rows"], left.way) == ("audit.sweep", 1, "console")
    assert not AuditSweep.objects.exists()
    with pytest.raises(DatabaseError), transaction.atomic():
        left.delete()


def test_leave_to_sweep_is_for_older_rows_alone() -> None:
    row = keep()
    AuditSweep.objects.create(before=row.at)

    with pytest.raises(DatabaseError, match="rows of the audit"), transaction.atomic():
        row.delete()


def test_a_row_outlives_its_person_and_its_project_by_name() -> None:
    project, user = make_project("team"), make_user("ada")
    run = make_run(project, user=user)
    Run.objects.all().delete()
    Project.objects.filter(pk=project.pk).delete()
    User.objects.filter(pk=user.pk).delete()

    row = AuditEvent.objects.get(verb="run.create")

    assert (row.actor_name, row.project_slug, row.project_id) == ("ada", "team", project.pk)
    assert (row.object_id, row.object_label) == (run.pk, run.name)


def test_a_deed_says_where_it_came_from() -> None:
    came = Origin(way="token", ip="192.0.2.7", token_id=3, token="ci (pw_abcdef…)", user_agent="curl/8")
    held = origin.set(came)
    try:
        record(actor=make_user("ada"), verb="run.stop", object_type="run", object_id="r-1")
    finally:
        origin.reset(held)
    row = AuditEvent.objects.get()

    assert (row.way, row.ip, row.token_id, row.token) == ("token", "192.0.2.7", 3, "ci (pw_abcdef…)")
    assert (row.actor_name, row.user_agent) == ("ada", "curl/8")
    assert keep().way == "console"  # nobody asked: a retry by policy, say


def test_a_command_is_of_the_user_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUDO_USER", "operator")
    held = origin.set(command_origin())
    try:
        row = keep()
    finally:
        origin.reset(held)

    assert (row.way, row.actor_name, row.actor_id) == ("command", "operator", None)


def test_no_secret_is_kept_of_what_changed() -> None:
    token = "hf_" + "a1" * 17
    before = {"note": f"use {token}", "knobs": [{"value": "postgres://me:open-sesame@db/x"}], "step": 3}

    record(actor=None, verb="run.change", object_type="run", object_id="r-1", before=before, after={"note": "none"})

    row = AuditEvent.objects.get()
    assert row.before == {"note": "use ***", "knobs": [{"value": "postgres://me:***@db/x"}], "step": 3}
    assert row.after == {"note": "none"}
