"""The pages of alerts and their API: what one sees, what one may do, and what is never shown again."""

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from jobs.alerts.channel_list import make_channel
from jobs.alerts.incidents import apply, mute
from jobs.alerts.rules import add_presets
from jobs.alerts.sighting import Sighting
from jobs.models import AlertChannel, AlertIncident, AlertRule, AlertSubscription, Project, Run, RunWatch
from tests.rows import make_project, make_run, make_user, signed_in

pytestmark = pytest.mark.django_db


@pytest.fixture
def project() -> Project:
    project = make_project("team")
    add_presets(timezone.now())
    return project


@pytest.fixture
def admin(project: Project) -> Client:
    return signed_in(make_user("ada", project=project, role="admin"))


@pytest.fixture
def run(project: Project) -> Run:
    return make_run(project, state="running", name="tuning <b>")


@pytest.fixture
def incident(project: Project, run: Run) -> AlertIncident:
    rule = AlertRule.objects.get(project=project, preset="no_progress")
    data = {"what": "no_progress", "name": run.name, "minutes": 31}
    sighting = Sighting(rule=rule, object_id=run.pk, run=run, is_on=True, data=data)
    apply([sighting], rules=[rule], now=timezone.now())
    return AlertIncident.objects.get()


def text(client: Client, address: str) -> str:
    answer = client.get(address)
    assert answer.status_code == 200
    return answer.content.decode()


def test_an_empty_page_says_what_would_stand_there(admin: Client) -> None:
    page = text(admin, reverse("alerts"))

    assert "Nothing needs you now" in page
    assert "What the rules find stands here" in page


def test_an_open_alert_stands_on_its_page_on_home_with_its_run_and_on_the_bell(
    admin: Client, run: Run, incident: AlertIncident
) -> None:
    for address in (reverse("alerts"), reverse("home"), reverse("run-alerts", args=[run.pk])):
        assert "tuning &lt;b&gt; makes no step" in text(admin, address), address
    assert "1 alert is open" in text(admin, reverse("home"))
    assert admin.get(reverse("usage")).json()["alerts"] == 1
    assert "For 31 minutes by now." in text(admin, reverse("alert", args=[incident.pk]))


def test_acknowledge_mute_and_resolve_move_it_from_list_to_list(admin: Client, incident: AlertIncident) -> None:
    def listed() -> list[str]:
        states = ("open", "muted", "acknowledged", "resolved")
        mark = f'data-alert="{incident.pk}"'
        return [state for state in states if mark in text(admin, f"{reverse('alerts')}?state={state}")]

    assert listed() == ["open"]
    admin.post(reverse("alert-mute", args=[incident.pk]), {"minutes": "60", "of": "alert"})
    assert listed() == ["muted"]
    admin.post(reverse("alert-mute", args=[incident.pk]), {"minutes": "0", "of": "alert"})
    assert listed() == ["open"]
    admin.post(reverse("alert-acknowledge", args=[incident.pk]))
    assert listed() == ["acknowledged"]
    assert "acknowledged by ada" in text(admin, reverse("alert", args=[incident.pk]))
    admin.post(reverse("alert-resolve", args=[incident.pk]))
    assert listed() == ["resolved"]
    assert admin.get(reverse("usage")).json()["alerts"] == 0


def test_a_note_is_kept_and_an_empty_one_is_refused_where_it_stands(admin: Client, incident: AlertIncident) -> None:
    refused = admin.post(reverse("alert-note", args=[incident.pk]), {"text": " "})
    assert refused.status_code == 422
    assert "A note has 1 to 1000 characters." in refused.content.decode()

    admin.post(reverse("alert-note", args=[incident.pk]), {"text": "waits for <data>"})
    assert "waits for &lt;data&gt;" in text(admin, reverse("alert", args=[incident.pk]))


def test_a_mute_of_the_project_is_told_on_the_page_and_can_be_ended(
    admin: Client, project: Project, incident: AlertIncident
) -> None:
    mute(project=project, minutes=60, user=make_user(), now=timezone.now())
    assert "All alerts of the project are muted." in text(admin, reverse("alerts"))

    made = project.alertmute_set.get()
    admin.post(reverse("alert-unmute", args=[made.pk]))
    assert not project.alertmute_set.exists()


def test_a_rule_is_made_changed_switched_off_and_deleted_on_the_page(admin: Client, project: Project) -> None:
    page = text(admin, f"{reverse('alert-rules')}?kind=threshold")
    assert 'name="p_metric"' in page
    fields = {"kind": "threshold", "name": "KL", "severity": "critical", "p_metric": "kl/mean", "p_direction": "above"}
    fields |= {"p_value": "0.2", "p_steps": "5", "p_minutes": "0", "tags": "nightly, big"}
    admin.post(reverse("new-alert-rule", args=["team"]), fields)
    rule = AlertRule.objects.get(name="KL")
    assert (rule.params["value"], rule.params["steps"], rule.tags) == (0.2, 5, ["nightly", "big"])

    address = reverse("edit-alert-rule", args=["team", rule.pk])
    refused = admin.post(address, fields | {"p_steps": "many"})
    assert refused.status_code == 422
    assert "a whole number from 1 to 500" in refused.content.decode()
    admin.post(address, {"verb": "off"})
    rule.refresh_from_db()
    assert not rule.is_enabled
    admin.post(address, {"verb": "delete"})
    assert not AlertRule.objects.filter(pk=rule.pk).exists()


def test_the_consoles_own_rules_are_for_superusers(admin: Client, project: Project) -> None:
    rule = AlertRule.objects.get(preset="disk_low")
    address = reverse("edit-alert-rule", args=["team", rule.pk])
    assert admin.post(address, {"verb": "off"}).status_code == 403
    assert "of the console" in text(admin, reverse("alert-rules"))

    root = make_user("root", project=project, role="admin")
    type(root).objects.filter(pk=root.pk).update(is_superuser=True)
    assert signed_in(type(root).objects.get(pk=root.pk)).post(address, {"verb": "off"}).status_code == 302


def test_a_webhooks_secret_is_shown_once_and_its_address_never(admin: Client, project: Project) -> None:
    fields = {"whose": "project", "kind": "webhook", "name": "ops", "address": "https://example.com/a-secret-path"}
    made = admin.post(reverse("new-alert-channel", args=["team"]), fields, follow=True).content.decode()
    assert "The signing secret of ops" in made

    again = text(admin, reverse("alert-rules"))
    told = admin.get("/api/projects/team/alert-channels").content.decode()
    for page in (made, again, told):
        assert "a-secret-path" not in page
    assert "The signing secret" not in again
    assert "example.com" in again


def test_a_refused_address_is_told_and_not_shown_back(admin: Client, project: Project) -> None:
    fields = {"whose": "me", "kind": "slack", "name": "me", "address": "https://10.0.0.1/a-secret-path"}
    refused = admin.post(reverse("new-alert-channel", args=["team"]), fields)

    assert refused.status_code == 422
    assert "private network" in refused.content.decode()
    assert "a-secret-path" not in refused.content.decode()


def test_one_subscribes_with_channels_of_ones_own_alone(admin: Client, project: Project) -> None:
    ada, bob = project.membership_set.get().user, make_user("bob", project=project)
    mine, _ = make_channel(kind="slack", name="m", address="https://example.com/", actor=ada, owner=ada)
    his, _ = make_channel(kind="slack", name="h", address="https://example.com/", actor=bob, owner=bob)
    address = reverse("change-alert-subscription", args=["team"])

    refused = admin.post(address, {"runs": "all", "severity": "info", "channels": [his.pk]})
    assert refused.status_code == 422
    admin.post(address, {"runs": "all", "severity": "info", "channels": [mine.pk]})

    assert AlertSubscription.objects.get().channels.get() == mine
    assert f'value="{his.pk}"' not in text(admin, reverse("alert-rules"))


@pytest.mark.parametrize("number", [0, -1, 1 << 63, 1 << 80])
def test_a_channel_that_no_row_can_be_is_refused_by_its_field(admin: Client, project: Project, number: int) -> None:
    del project
    body, kind = {"channels": [number]}, "application/json"
    answers = [
        admin.put("/api/projects/team/alert-subscription", body, content_type=kind),
        admin.post("/api/projects/team/alert-rules", {"kind": "run_state", **body}, content_type=kind),
    ]

    told = [(answer.status_code, answer.json()["problems"][0]["field"]) for answer in answers]
    assert told == [(422, "channels")] * 2


def test_channels_of_others_can_be_neither_tested_nor_deleted(admin: Client, project: Project) -> None:
    bob = make_user("bob", project=project)
    his, _ = make_channel(kind="slack", name="h", address="https://example.com/", actor=bob, owner=bob)
    elsewhere = make_project("elsewhere")
    theirs, _ = make_channel(kind="slack", name="t", address="https://example.com/", actor=bob, project=elsewhere)

    for channel in (his, theirs):
        for verb in ("test", "delete"):
            answer = admin.post(reverse("edit-alert-channel", args=["team", channel.pk]), {"verb": verb})
            assert answer.status_code == 404
        assert admin.delete(f"/api/account/alert-channels/{channel.pk}").status_code == 404
        assert admin.delete(f"/api/projects/team/alert-channels/{channel.pk}").status_code == 404
    assert AlertChannel.objects.count() == 2


def test_a_run_is_watched_and_no_longer(admin: Client, run: Run) -> None:
    admin.post(reverse("run-watch", args=[run.pk]), {"is_on": "1"})
    assert RunWatch.objects.exists()
    assert "You watch this run" in text(admin, reverse("run", args=[run.pk]))

    admin.post(reverse("run-watch", args=[run.pk]), {"is_on": "0"})
    assert not RunWatch.objects.exists()


def test_the_api_says_and_does_the_same(admin: Client, run: Run, incident: AlertIncident) -> None:
    def post(verb: str, **body: Any) -> Any:
        return admin.post(f"/api/alerts/{incident.pk}/{verb}", body, content_type="application/json")

    (listed,) = admin.get(f"/api/alerts?run={run.pk}").json()["alerts"]
    assert (listed["title"], listed["state"], listed["run"]) == (f"{run.name} makes no step", "open", run.pk)
    assert post("acknowledge").json()["acknowledged_by"] == "ada"
    assert post("acknowledge").status_code == 409
    assert post("mute", minutes=10, of="run").json()["muted_until"]
    assert post("mute", minutes=10, of="world").json()["problems"][0]["field"] == "of"
    assert post("notes", text="seen").json()["notes"][-1]["text"] == "seen"
    assert post("resolve").json()["state"] == "resolved"


def test_the_api_makes_and_changes_rules(admin: Client, project: Project) -> None:
    def send(method: str, path: str, body: Any) -> Any:
        return getattr(admin, method)(f"/api/projects/team/{path}", body, content_type="application/json")

    made = send("post", "alert-rules", {"kind": "absence", "params": {"metric": "eval/accuracy", "minutes": 30}})
    assert made.status_code == 201
    number = made.json()["id"]
    changed = send("patch", f"alert-rules/{number}", {"params": {"minutes": 5}}).json()
    assert changed["params"] == {"metric": "eval/accuracy", "minutes": 5.0}
    refused = send("patch", f"alert-rules/{number}", {"params": {"minutes": "soon"}})
    assert (refused.status_code, refused.json()["problems"][0]["field"]) == (422, "params.minutes")
    assert admin.delete(f"/api/projects/team/alert-rules/{number}").status_code == 204
    preset = AlertRule.objects.get(project=project, preset="run_failed")
    assert admin.delete(f"/api/projects/team/alert-rules/{preset.pk}").status_code == 409


def test_an_editor_of_some_project_silences_nothing_of_the_console_s(project: Project) -> None:
    rule = AlertRule.objects.get(project=None, preset="disk_low")
    data = {"what": "disk", "free_gib": 1, "total_gib": 100}
    apply([Sighting(rule=rule, object_id="disk", is_on=True, data=data)], rules=[rule], now=timezone.now())
    alert = AlertIncident.objects.get()
    editor = signed_in(make_user("edda", project=project, role="editor"))
    operator = make_user("olga", project=project, role="editor")
    operator.is_superuser = True
    operator.save()
    ways = [(f"/api/alerts/{alert.pk}/mute", {"minutes": 5, "of": "rule"}), (f"/api/alerts/{alert.pk}/resolve", {})]
    page = text(editor, reverse("alert", args=[alert.pk]))

    for address, body in ways:
        assert editor.post(address, body, content_type="application/json").status_code == 403
    assert editor.post(reverse("alert-mute", args=[alert.pk]), {"minutes": "60", "of": "alert"}).status_code == 403
    assert editor.post(reverse("alert-resolve", args=[alert.pk])).status_code == 403
    assert tuple(f"{alert.pk}/{verb}" in page for verb in ("acknowledge", "resolve", "mute")) == (True, False, False)
    assert editor.post(f"/api/alerts/{alert.pk}/acknowledge").status_code == 200
    for address, body in ways:
        assert signed_in(operator).post(address, body, content_type="application/json").status_code == 200
