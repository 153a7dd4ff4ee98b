"""Calibration by page, API and command: seen by members, taken over and undone by admins, with a sentence for a no."""

import re
from dataclasses import replace
from html import unescape
from typing import Any

import pytest
from django.contrib.auth.models import AbstractUser
from django.test import Client
from django.urls import reverse

from console.sign_in.api_token import make_token
from jobs.models import Project, Run
from jobs.planning.joining import join_run
from jobs.planning.settings import constants_of
from tests.console.commands import run_command
from tests.measured_runs import AWAY, four_runs, measured_run
from tests.rows import NOW, make_project, make_user

pytestmark = pytest.mark.django_db

KIND = "h200-sxm"


@pytest.fixture
def project() -> Project:
    return make_project("team")


@pytest.fixture
def person(project: Project) -> AbstractUser:
    return make_user("ada", project=project, role="admin")


@pytest.fixture
def admin(person: AbstractUser) -> Client:
    client = Client()
    client.force_login(person, backend="django.contrib.auth.backends.ModelBackend")
    return client


@pytest.fixture(autouse=True)
def _away(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("console.views.settings.calibration", "console.api.planner.calibration"):
        monkeypatch.setattr(f"{module}.cluster_state", lambda: AWAY)


def card(client: Client) -> str:
    answer = client.get(reverse("calibration", args=["team"]))
    assert answer.status_code == 200
    return unescape(answer.content.decode())


def cells(text: str, constant: str) -> list[str]:
    (row,) = re.findall(rf'data-constant-proposal="{re.escape(constant)}">(.*?)</tr>', text, flags=re.DOTALL)
    found = re.findall(r"<td[^>]*>(.*?)</td>", row, flags=re.DOTALL)
    return [re.sub(r"<[^>]*>", " ", cell).strip() for cell in found]


def change(client: Client, **fields: str) -> str:
    answer = client.post(reverse("change-calibration", args=["team"]), {"accelerator": KIND, **fields}, follow=True)
    assert answer.status_code == 200
    return unescape(answer.content.decode())


def test_the_settings_page_asks_for_it_when_it_is_in_sight(admin: Client) -> None:
    page = admin.get(reverse("settings")).content.decode()

    assert f'hx-get="{reverse("calibration", args=["team"])}" hx-trigger="intersect once"' in page


def test_values_are_shown_beside_those_of_now_taken_with_a_click_and_undone(
    project: Project, person: AbstractUser, admin: Client
) -> None:
    four_runs(project, person, rollout=1.6, update=0.7)

    text = card(admin)
    assert cells(text, "decode.pace") == ["1 assumed", "1.6", "60 %", "0 %", "4 runs of 4 settings"]
    assert cells(text, "network.sync_pace")[1] == "—"
    assert "No improvement" in cells(text, "network.sync_pace")[4]
    assert re.search(r"Step times of runs left out of the fit: error \d+ % now, 0 % with these values.", text)
    assert "Undo the last" not in text

    assert "Plans for H200 SXM 141 GB now use what runs measured." in change(admin)
    project.refresh_from_db()
    assert constants_of(project, KIND).decode.pace == pytest.approx(1.6)
    assert cells(card(admin), "decode.pace")[:2] == ["1.6 measured", "—"]
    page = unescape(admin.get(reverse("settings")).content.decode())
    assert "1.6 on H200 SXM 141 GB, measured on 4 runs; error 60 % before, 0 % after" in page
    assert "suggest no better value" in change(admin)

    assert "Plans for H200 SXM 141 GB are as before." in change(admin, undo="1")
    project.refresh_from_db()
    assert project.calibrations == {}
    assert "No value was applied for H200 SXM 141 GB." in change(admin, undo="1")


def test_runs_that_joined_are_shown_on_both_pages_and_joining_is_switched_off_and_on(
    project: Project, person: AbstractUser, admin: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = four_runs(project, person, update=2.0)[-1]
    assert join_run(run.pk, state=replace(AWAY, is_reachable=True), now=NOW)

    said = "with what it measured by 0 %. The values rest on 4 settings."
    text = card(admin)
    assert said in text
    assert 'data-joins="on"' in text
    monkeypatch.setattr("console.views.run.plan.cluster_state", lambda: AWAY)
    assert said in unescape(admin.get(reverse("run-plan", args=[run.pk])).content.decode())
    assert "Finished runs no longer join the calibration." in change(admin, joins="off")
    answer = admin.get("/api/projects/team/calibration").json()
    (joined,) = answer["joined"]
    assert (answer["joins"], joined["run"], joined["constants"]["speed.update_pace"]["was"]) == (False, run.pk, 1)
    neither = admin.post("/api/projects/team/calibration", {}, content_type="application/json")
    assert neither.status_code == 422


def test_too_few_settings_are_said(project: Project, person: AbstractUser, admin: Client) -> None:
    measured_run(project, person, prompts=64, update=2.0)
    measured_run(project, person, prompts=128, update=2.0)

    text = card(admin)

    assert "Runs of 3 different settings are needed, and there are 2." in text
    assert "Use these values" not in text


def test_runs_that_were_left_out_are_said(project: Project, person: AbstractUser, admin: Client) -> None:
    measured_run(project, person, steps=2)

    text = card(admin)

    assert "No finished run can be compared with the planner yet." in text
    assert "1 run is not used: It reports the time of fewer than four steps." in text


def test_a_viewer_sees_what_runs_say_and_changes_nothing(project: Project, person: AbstractUser) -> None:
    four_runs(project, person, update=2.0)
    viewer = Client()
    viewer.force_login(make_user(project=project, role="viewer"))

    assert cells(card(viewer), "speed.update_pace")[1] == "2"
    assert "<form" not in card(viewer)


def test_by_api_it_is_read_taken_and_undone(project: Project, person: AbstractUser, admin: Client) -> None:
    four_runs(project, person, update=2.0)
    url = "/api/projects/team/calibration"

    def update_of(answer: Any) -> dict[str, Any]:
        assert answer.status_code == 200, answer.content
        (kind,) = answer.json()["kinds"]
        assert (kind["accelerator"], kind["num_runs"]) == (KIND, 4)
        found: dict[str, Any] = next(p for p in kind["proposals"] if p["constant"] == "speed.update_pace")
        return found

    found = update_of(admin.get(url))
    assert (found["present"], found["evidence"], found["proposed"]) == (1, "assumed", pytest.approx(2))
    assert (found["before"], found["after"]) == (pytest.approx(1), pytest.approx(0, abs=1e-9))
    taken = update_of(admin.post(url, {"accelerator": KIND}, content_type="application/json"))
    assert (taken["present"], taken["evidence"]) == (pytest.approx(2), "measured")
    refused = admin.post(url, {"accelerator": "l4"}, content_type="application/json")
    assert refused.status_code == 422
    assert refused.json()["problems"][0]["field"] == "accelerator"
    assert update_of(admin.delete(f"{url}?accelerator={KIND}"))["present"] == 1
    assert admin.delete(f"{url}?accelerator={KIND}").status_code == 422


def test_the_command_says_takes_and_undoes(
    project: Project, person: AbstractUser, served_here: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PITWALL_API_TOKEN", make_token(user=person, name="cli")[1])
    four_runs(project, person, update=2.0)

    code, out, _err = run_command("calibrate")
    assert code == 0
    assert f"{KIND}: 4 finished runs" in out
    assert (
        "speed.update_pace is 1 (assumed), 2 by 4 runs of 4 settings, missed by a factor of 2 now, 0 % with it" in out
    )

    assert run_command("calibrate", "--take", KIND)[0] == 0
    project.refresh_from_db()
    assert constants_of(project, KIND).speed.update_pace == pytest.approx(2)
    assert run_command("calibrate", "--undo", KIND)[0] == 0
    code, _out, err = run_command("calibrate", "--undo", KIND)
    assert code == 3
    assert "No value was applied for 'h200-sxm'." in err

    run = Run.objects.filter(project=project).latest("pk")
    assert join_run(run.pk, state=replace(AWAY, is_reachable=True), now=NOW)
    code, out, _err = run_command("calibrate", "--joining", "off")
    assert code == 0
    assert "finished runs do not join by themselves" in out
    assert f"{run.pk} on {KIND}: speed.update_pace 2" in out
    assert "0 % after (4 settings)" in out
