"""Whether live pages may go on: asked for all of a process with a handful of queries, and no answer is a no."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth import BACKEND_SESSION_KEY
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session

from console.live import access_watch
from console.live.access_watch import NOT_YOURS, SIGN_IN, AccessWatch, Seat, refusals
from console.live.hub import Mailbox, Shut
from jobs.models import Membership
from tests.console.live.test_live import sign_in
from tests.rows import NOW, make_project, make_run, make_user


def seat(user: Any, **followed: Any) -> Seat:
    return Seat(session_key=sign_in(user), user_id=user.pk, **followed)


@pytest.mark.django_db
def test_who_follows_is_asked_about_together(django_assert_num_queries: Any) -> None:
    project, other = make_project(), make_project()
    run = make_run(project)
    seats = [seat(make_user(project=project), kind="run", name=run.pk) for _ in range(20)]
    seats.append(seat(make_user(project=project), kind="project", name=project.slug))
    strangers = [seat(make_user(project=other), kind=kind, name=name) for kind, name in of_others(run, project)]

    with django_assert_num_queries(6):  # sessions, accounts, runs, traces, projects, memberships
        codes = refusals([*seats, *strangers])

    assert codes == dict.fromkeys(strangers, NOT_YOURS)


def of_others(run: Any, project: Any) -> Any:
    return (("run", run.pk), ("project", project.slug), ("trace", "t-none"), ("run", "r-none"))


@pytest.mark.django_db
@pytest.mark.parametrize(
    "deed", ["expired", "of another account", "without its way in", "inactive", "another password"]
)
def test_a_session_counts_by_the_rules_of_signing_in(deed: str) -> None:
    project = make_project()
    user = make_user(project=project)
    here = seat(user, kind="project", name=project.slug)
    assert refusals([here]) == {}

    if deed == "expired":
        Session.objects.update(expire_date=NOW - timedelta(days=9999))
    elif deed == "of another account":
        here = Seat(session_key=sign_in(make_user()), user_id=user.pk, kind="project", name=project.slug)
    elif deed == "without its way in":
        row = Session.objects.get(pk=here.session_key)
        said = row.get_decoded() | {BACKEND_SESSION_KEY: "gone.Backend"}
        Session.objects.save(row.pk, said, row.expire_date)
    elif deed == "inactive":
        User.objects.update(is_active=False)
    else:
        User.objects.update(password="another")

    assert refusals([here]) == {here: SIGN_IN}


@pytest.mark.django_db
def test_a_membership_that_has_ended_ends_its_seats_only() -> None:
    project = make_project()
    run, users = make_run(project), [make_user(project=project) for _ in range(2)]
    seats = [seat(user, kind="run", name=run.pk) for user in users]

    Membership.objects.filter(user=users[0]).delete()

    assert refusals(seats) == {seats[0]: NOT_YOURS}


@pytest.mark.asyncio
async def test_where_nobody_can_be_asked_all_are_shut(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_seats: Any) -> dict[Seat, int]:
        raise OSError("no database")

    monkeypatch.setattr(access_watch, "PERIOD_SECONDS", 0.0)
    monkeypatch.setattr(access_watch, "refusals", fail)
    watch, mailbox = AccessWatch(), Mailbox()
    watch.enter(mailbox, Seat(session_key="x", user_id=1, kind="run", name="r"))

    with pytest.raises(Shut) as shut:
        await mailbox.wait(60)

    assert shut.value.code == access_watch.STUMBLED
    watch.leave(mailbox)
