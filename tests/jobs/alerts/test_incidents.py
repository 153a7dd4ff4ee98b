"""One incident per rule and object, from when its condition holds until it has cleared."""

from datetime import timedelta
from typing import Any

import pytest

from jobs.alerts import words
from jobs.alerts.incidents import acknowledge, add_note, apply, mute, resolve_by_hand
from jobs.alerts.kinds import AlertRefused
from jobs.alerts.rules import change_rule, make_rule
from jobs.alerts.sighting import Sighting
from jobs.models import AlertIncident, AlertRule, Attempt, AuditEvent, Project, Run
from jobs.runs import lifecycle
from tests.jobs.alerts.watchman import Watchman
from tests.rows import NOW, make_project, make_run, make_user

pytestmark = pytest.mark.django_db
MINUTE = timedelta(minutes=1)


def fail(run: Run, *, now: Any, side: str = "trainer") -> None:
    cause = {"side": side, "text": "out of memory"}
    lifecycle.finish(run_id=run.pk, attempt=run.latest_attempt, state="failed", cause=cause, cleanup={}, now=now)


def on(rule: AlertRule, object_id: str = "x", **data: Any) -> Sighting:
    return Sighting(rule=rule, object_id=object_id, is_on=True, data=data)


def off(rule: AlertRule, object_id: str = "x") -> Sighting:
    return Sighting(rule=rule, object_id=object_id, is_on=False)


@pytest.fixture
def rule() -> AlertRule:
    return AlertRule.objects.create(project=make_project(), kind="lost_contact", name="Lost", params={"minutes": 1})


def test_a_failed_run_opens_one_incident_with_its_cause_though_nobody_made_a_rule(watchman: Watchman) -> None:
    run = make_run(state="running")
    assert watchman.step() == []  # the rules are there from now on
    fail(run, now=watchman.now)

    for _ in range(3):
        incidents = watchman.step()
    watchman.restart()
    incidents = watchman.step()

    assert [(i.state, i.severity, i.rule.preset) for i in incidents] == [("open", "critical", "run_failed")]
    assert words.title(incidents[0]) == f"{run.name} failed"
    assert words.sentence(incidents[0]) == "out of memory"


def test_a_failure_resolves_when_the_run_goes_on_and_the_next_one_is_another_incident(watchman: Watchman) -> None:
    run = make_run(state="running")
    watchman.step()
    fail(run, now=watchman.now)
    watchman.step()
    Attempt.objects.create(run=run, number=2, state="running", submission_id="s2", last_contact_at=watchman.now)
    Run.objects.filter(pk=run.pk).update(state="running", latest_attempt=2)

    (first,) = watchman.step()
    assert first.state == "resolved"

    run.refresh_from_db()
    fail(run, now=watchman.now)
    assert [i.state for i in watchman.step()] == ["resolved", "open"]


def test_what_ended_before_there_was_a_rule_is_no_news(watchman: Watchman) -> None:
    run = make_run(state="failed")
    Attempt.objects.filter(run=run).update(ended_at=NOW - timedelta(days=1))

    assert watchman.step() == []


@pytest.mark.parametrize(
    ("states", "sides", "end", "count"),
    [
        (["finished"], [], "finished", 1),
        (["finished"], [], "stopped", 0),
        (["stopped"], [], "stopped", 1),
        (["failed"], ["cluster"], "failed", 0),
        (["failed"], ["trainer"], "failed", 1),
    ],
)
def test_a_rule_looks_at_its_states_and_sides(
    watchman: Watchman, states: list[str], sides: list[str], end: str, count: int
) -> None:
    run = make_run(state="running")
    rule = make_rule(
        project=run.project, kind="run_state", fields={"params": {"states": states, "sides": sides}}, actor=make_user()
    )
    AlertRule.objects.filter(pk=rule.pk).update(since=NOW)
    cause = {"side": "trainer", "text": "x"}
    lifecycle.finish(run_id=run.pk, attempt=1, state=end, cause=cause, cleanup={}, now=NOW + MINUTE)

    watchman.step(90)
    found = AlertIncident.objects.filter(rule=rule)

    assert found.count() == count
    if count and end != "failed":
        assert found.get().state == "resolved", "nothing of it lasts"


def test_a_rule_looks_at_runs_with_its_tags_and_algorithms(watchman: Watchman) -> None:
    project = make_project()
    nightly = make_run(project, state="running", tags=["nightly"])
    make_run(project, state="running")
    both = make_rule(project=project, kind="waiting", fields={"tags": ["nightly"]}, actor=make_user())
    make_rule(project=project, kind="waiting", fields={"algorithms": ["sft"]}, actor=make_user())
    Run.objects.update(state="queued")
    Attempt.objects.update(state="queued")

    incidents = watchman.step(31 * 60)

    assert [(i.rule_id, i.run_id) for i in incidents] == [(both.pk, nightly.pk)]


def test_lost_contact_opens_after_its_minute_and_resolves_when_it_is_back(watchman: Watchman) -> None:
    run = make_run(state="running")
    assert watchman.step(50) == []
    (incident,) = watchman.step(30)
    assert words.sentence(incident) == "For 1 minute by now."

    Attempt.objects.filter(run=run).update(last_contact_at=watchman.now + MINUTE)
    watchman.step(60)
    assert watchman.step(10)[0].state == "open", "back for ten seconds"
    Attempt.objects.filter(run=run).update(last_contact_at=watchman.now + MINUTE)
    assert watchman.step(30)[0].state == "resolved"


def test_no_step_for_long_is_told_once_and_not_known_right_after_a_restart(watchman: Watchman) -> None:
    run = make_run(state="running")
    AlertRule.objects.create(project=run.project, kind="no_progress", name="x", params={"minutes": 10}, since=NOW)
    Attempt.objects.filter(run=run).update(last_contact_at=NOW + timedelta(days=1))
    watchman.step()
    assert watchman.step(500) == []
    assert [i.state for i in watchman.step(110)] == ["open"]

    watchman.restart()
    assert [i.state for i in watchman.step()] == ["open"]
    Run.objects.filter(pk=run.pk).update(step=1)
    assert [i.state for i in watchman.step()] == ["resolved"]


def test_a_condition_must_stay_away_before_it_resolves(rule: AlertRule) -> None:
    at = NOW
    for seconds, sighting in ((0, on(rule)), (5, off(rule)), (10, on(rule)), (15, off(rule)), (40, off(rule))):
        at = NOW + timedelta(seconds=seconds)
        apply([sighting], rules=[rule], now=at)
    incident = AlertIncident.objects.get()
    assert (incident.state, incident.event_count) == ("open", 2)

    apply([off(rule)], rules=[rule], now=NOW + timedelta(seconds=46))

    incident.refresh_from_db()
    assert incident.state == "resolved"
    apply([on(rule)], rules=[rule], now=at + MINUTE)
    assert AlertIncident.objects.count() == 2


def test_what_comes_and_goes_stays_open_until_it_was_quiet(rule: AlertRule) -> None:
    at = NOW
    for _ in range(6):
        apply([on(rule)], rules=[rule], now=at)
        apply([off(rule)], rules=[rule], now=at + MINUTE)
        apply([off(rule)], rules=[rule], now=at + 2 * MINUTE)
        at += 3 * MINUTE
    assert AlertIncident.objects.count() == 4
    last = AlertIncident.objects.latest("pk")
    assert (last.is_flapping, last.state, last.event_count) == (True, "open", 3)

    apply([off(rule)], rules=[rule], now=at)
    apply([off(rule)], rules=[rule], now=at + 15 * MINUTE)
    last.refresh_from_db()
    assert last.state == "resolved"


def test_what_is_not_known_changes_nothing(rule: AlertRule) -> None:
    apply([on(rule)], rules=[rule], now=NOW)

    unknown = Sighting(rule=rule, object_id="x", is_on=None)
    apply([unknown], rules=[rule], now=NOW + timedelta(hours=1))

    assert AlertIncident.objects.get().clear_since is None


def test_what_a_person_resolved_stays_so_until_it_cleared(rule: AlertRule) -> None:
    user = make_user()
    apply([on(rule)], rules=[rule], now=NOW)
    assert resolve_by_hand(AlertIncident.objects.get(), user=user, now=NOW)

    apply([on(rule)], rules=[rule], now=NOW + MINUTE)
    assert AlertIncident.objects.count() == 1

    apply([off(rule)], rules=[rule], now=NOW + 2 * MINUTE)
    apply([on(rule)], rules=[rule], now=NOW + 3 * MINUTE)
    assert AlertIncident.objects.count() == 2


def test_who_did_what_to_an_incident_is_kept(rule: AlertRule) -> None:
    user = make_user("ada")
    apply([on(rule)], rules=[rule], now=NOW)
    incident = AlertIncident.objects.get()

    assert acknowledge(incident, user=user, now=NOW + MINUTE)
    assert not acknowledge(incident, user=make_user(), now=NOW + MINUTE), "somebody is on it"
    add_note(incident, "the switch is being replaced", user=user, now=NOW + MINUTE)
    mute(project=rule.project, incident=incident, minutes=60, user=user, now=NOW + MINUTE)

    incident.refresh_from_db()
    assert (incident.state, incident.acknowledged_by) == ("acknowledged", user)
    assert [(n.verb, n.actor_id) for n in incident.notes.order_by("pk")] == [
        ("opened", None),
        ("acknowledged", user.pk),
        ("note", user.pk),
        ("muted", user.pk),
    ]
    verbs = AuditEvent.objects.order_by("pk").values_list("verb", flat=True)
    assert list(verbs) == ["alert.acknowledge", "alert.note", "alert.mute"]


@pytest.mark.parametrize(
    ("act", "says"),
    [
        (lambda i, u: add_note(i, "  ", user=u, now=NOW), "1 to 1000 characters"),
        (lambda i, u: mute(project=None, minutes=-1, user=u, now=NOW), "0 to 10080 minutes"),
        (lambda i, u: mute(project=None, incident=i, is_run=True, minutes=5, user=u, now=NOW), "about no run"),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_sentence(rule: AlertRule, act: Any, says: str) -> None:
    apply([on(rule)], rules=[rule], now=NOW)

    with pytest.raises(AlertRefused, match=says):
        act(AlertIncident.objects.get(), make_user())


def test_a_rule_that_is_switched_off_has_nothing_open(watchman: Watchman) -> None:
    make_run(state="running")
    watchman.step()
    (incident,) = watchman.step(90)

    change_rule(incident.rule, fields={"is_enabled": False}, actor=make_user())

    assert [i.state for i in watchman.step()] == ["resolved"]


def test_deleting_a_project_or_a_run_takes_its_alerts_along(watchman: Watchman) -> None:
    run = make_run(state="running")
    watchman.step()
    watchman.step(90)
    Run.objects.filter(pk=run.pk).delete()
    assert watchman.step() == []

    Project.objects.all().delete()
    assert set(AlertRule.objects.values_list("project_id", flat=True)) == {None}
