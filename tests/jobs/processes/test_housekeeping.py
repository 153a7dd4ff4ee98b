"""What expired a day ago is gone, what lives stays, and a sweep that fails holds up nothing."""

import os
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from axes.models import AccessAttempt, AccessLog
from django.contrib.sessions.models import Session
from django.utils import timezone

from jobs.accounts.audit import record
from jobs.models import ApiToken, AuditEvent, SigninLink
from jobs.preflight.inputs import uploads_dir
from jobs.processes import housekeeping
from jobs.processes.reconcile import ReconcilerState, reconcile
from tests.rows import make_user

pytestmark = pytest.mark.django_db
DAY = timedelta(days=1)


def rows_of(days: float, *, name: str) -> None:
    """Make a row of each kind that expired, ended or happened so many days ago (negative: will)."""
    then = timezone.now() - days * DAY
    user = make_user(name)
    Session.objects.create(session_key=name, session_data="", expire_date=then)
    for part, fields in (("x", {"expires_at": then}), ("u", {"expires_at": then + 30 * DAY, "used_at": then})):
        SigninLink.objects.create(user=user, sha256=f"{name}-{part}", **fields)
    for model, fields in ((AccessAttempt, {"failures_since_start": 3}), (AccessLog, {})):
        about = {"username": name, "ip_address": "192.0.2.7", "user_agent": "", "http_accept": "", "path_info": ""}
        row = model.objects.create(**about, **fields)
        model.objects.filter(pk=row.pk).update(attempt_time=then)


def names() -> dict[str, list[str]]:
    found: dict[str, Any] = {
        "sessions": Session.objects.values_list("session_key", flat=True),
        "links": SigninLink.objects.values_list("sha256", flat=True),
        "attempts": AccessAttempt.objects.values_list("username", flat=True),
        "logs": AccessLog.objects.values_list("username", flat=True),
    }
    return {kind: sorted(values) for kind, values in found.items()}


def test_rows_of_a_day_ago_are_gone_and_live_ones_are_not() -> None:
    rows_of(1.1, name="old")
    rows_of(-1, name="live")

    told = housekeeping.sweep_expired(now=timezone.now())

    one = ["live"]
    assert names() == {"sessions": one, "links": ["live-u", "live-x"], "attempts": one, "logs": one}
    assert told == {
        "sessions": 1,
        "sign-in links": 2,
        "failed sign-ins": 1,
        "logs of sign-ins": 1,
    }


def test_a_lock_out_and_a_link_just_used_outlive_the_sweep() -> None:
    rows_of(0.1, name="today")  # the page can still say that the link was used, and the name stays locked

    housekeeping.sweep_expired(now=timezone.now())

    assert names()["links"] == ["today-u", "today-x"]
    assert names()["attempts"] == ["today"]


def test_tokens_go_90_days_after_their_end_and_the_audit_after_the_days_it_is_kept(settings: Any) -> None:
    user, now = make_user("ada"), timezone.now()
    ends = {"old": {"expires_at": now - 91 * DAY}, "revoked": {"revoked_at": now - 91 * DAY}}
    ends |= {"lately": {"revoked_at": now - 89 * DAY}, "live": {"expires_at": now + DAY}, "endless": {}}
    for name, fields in ends.items():
        ApiToken.objects.create(user=user, name=name, sha256=name, prefix="pw_", **fields)
    with patch.object(timezone, "now", return_value=now - 11 * DAY):
        record(actor=None, verb="run.stop", object_type="run", object_id="r-1")
    settings.AUDIT_DAYS = 10

    housekeeping.sweep_expired(now=now)

    assert sorted(ApiToken.objects.values_list("name", flat=True)) == ["endless", "lately", "live"]
    assert [row.verb for row in AuditEvent.objects.all()] == ["audit.sweep"]


def test_what_killed_processes_left_in_folders_is_gone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    uploads_dir().mkdir(parents=True, exist_ok=True)
    old = (timezone.now() - 2 * DAY).timestamp()
    made = [uploads_dir() / ".aa.part", uploads_dir() / ".bb.part"]
    for file in made:
        file.write_bytes(b"x")
    folders = [tmp_path / "pitwall-trial-old", tmp_path / "pitwall-trial-new", tmp_path / "other"]
    for folder in folders:
        (folder / "in").mkdir(parents=True)
    for path in (made[0], folders[0], folders[2]):
        os.utime(path, (old, old))

    housekeeping.sweep_expired(now=timezone.now())

    assert [path.exists() for path in (*made, *folders)] == [False, True, False, True, True]
    made[1].unlink()


def test_the_reconciler_sweeps_at_its_start_and_once_a_day_whatever_becomes_of_it() -> None:
    memory, now = ReconcilerState(), timezone.now()
    with patch.object(housekeeping, "sweep_expired", side_effect=ValueError) as sweep:
        for hours in (0, 1, 23, 25, 26):
            reconcile(now=now + timedelta(hours=hours), memory=memory)

    assert sweep.call_count == 2
