"""Healthy bands: a project sets its own by page and API, charts draw them, and a run that leaves one has a mark."""

import json

import pytest
from django.contrib.auth.models import User
from django.core.management.base import CommandError
from django.test import Client
from django.urls import reverse

from console.sign_in.api_token import make_token
from jobs.diagnosis.bands import bands_of
from jobs.diagnosis.health import judge_next
from jobs.models import Project, Run
from tests.batches import metric
from tests.console.commands import run_command
from tests.jobs.diagnosis.test_symptoms import report
from tests.rows import NOW, make_project, make_run, make_user

pytestmark = pytest.mark.django_db


@pytest.fixture
def project() -> Project:
    return make_project()


@pytest.fixture
def admin(project: Project, client: Client) -> Client:
    client.force_login(make_user(project=project, role="admin"))
    return client


def page_data(client: Client, run: Run) -> dict[str, object]:
    page = client.get(reverse("run", args=[run.pk])).content.decode()
    found: dict[str, object] = json.loads(page.partition('id="run-page"')[2].partition(">")[2].partition("</script")[0])
    return found


def test_a_band_set_on_the_page_is_drawn_and_can_be_taken_back(admin: Client, project: Project) -> None:
    run, change = make_run(project, state="running"), reverse("change-bands", args=[project.slug])
    usual = page_data(admin, run)["bands"]
    assert isinstance(usual, dict)
    assert usual["kl/reference"] == [-0.05, 0.5]

    admin.post(change, {"metric": "kl/reference", "low": "0", "high": "0.2"})
    admin.post(change, {"metric": "policy/clip_fraction"})

    expected = {**usual, "kl/reference": [0.0, 0.2]}
    del expected["policy/clip_fraction"]
    assert page_data(admin, run)["bands"] == expected
    shown = admin.get(reverse("bands", args=[project.slug])).content.decode()
    assert shown.count("this project") == 2
    asked = admin.get(reverse("bands", args=[project.slug]), {"metric": "kl/reference"}).content.decode()
    assert 'value="0.2"' in asked  # ready to be changed

    admin.post(change, {"metric": "kl/reference", "reset": "1"})
    assert page_data(admin, run)["bands"]["kl/reference"] == [-0.05, 0.5]  # type: ignore[index]


def test_a_band_that_is_none_is_refused_and_what_was_typed_stays(admin: Client, project: Project) -> None:
    given = {"metric": "kl/reference", "low": "0.4", "high": "nought"}

    answer = admin.post(reverse("change-bands", args=[project.slug]), given)

    assert answer.status_code == 422
    text = answer.content.decode()
    assert "is 0.4 – nought. Use two numbers, the smaller first" in text
    assert 'value="nought"' in text


def test_a_name_that_no_run_has_reported_is_kept_and_doubted(admin: Client, project: Project) -> None:
    change = reverse("change-bands", args=[project.slug])

    said = admin.post(change, {"metric": "kl/referense", "low": "0", "high": "1"}, follow=True).content.decode()
    assert "Did you mean kl/reference?" in said
    assert "kl/referense" in bands_of(Project.objects.get(pk=project.pk))

    report(make_run(project, state="running"), metric(1, **{"kl/referense": 0.1}))
    said = admin.post(change, {"metric": "kl/referense", "low": "0", "high": "1"}, follow=True).content.decode()
    assert "Did you mean" not in said

    said = admin.post(change, {"metric": "nosuch", "low": "0", "high": "1"}, follow=True).content.decode()
    assert "No run here has reported nosuch: its band is drawn once one does." in said


def test_by_the_api_bands_are_set_and_marks_are_read(admin: Client, project: Project) -> None:
    run, address = make_run(project, state="running"), f"/api/projects/{project.slug}/bands"
    refused = admin.patch(address, {"bands": {"kl/reference": [1, 0]}}, content_type="application/json")
    assert refused.status_code == 422
    assert refused.json()["problems"][0]["field"] == "bands.kl/reference"

    answer = admin.patch(address, {"bands": {"response/length_mean": [0, 100]}}, content_type="application/json")
    assert [one for one in answer.json()["bands"] if one["is_own"]] == [
        {"metric": "response/length_mean", "algorithm": "", "low": 0.0, "high": 100.0, "source": "", "is_own": True}
    ]
    report(run, *[metric(step, **{"response/length_mean": 150.0}) for step in range(1, 13)])
    Run.objects.filter(pk=run.pk).update(step=12)
    judge_next(now=NOW)

    health = admin.get(f"/api/runs/{run.pk}/health").json()

    assert health["judged_step"] == 12
    (mark,) = health["marks"]
    assert (mark["finding"], mark["tone"]) == ("band:response/length_mean", "alarm")
    assert (mark["begin_step"], mark["end_step"]) == (10, None)
    assert mark["title"] == "Response length is outside of its band"
    assert "150, outside of 0 to 100" in mark["evidence"]


def test_the_command_shows_and_sets_bands(
    project: Project, served_here: None, monkeypatch: pytest.MonkeyPatch, admin: Client
) -> None:
    monkeypatch.setenv("PITWALL_API_TOKEN", make_token(user=User.objects.get(), name="cli")[1])

    code, out, _err = run_command("bands", "kl/reference=-0.1:0.3", "policy/clip_fraction=none")
    assert code == 0
    assert out.split("\n")[:2] == [
        f"{'kl/reference':<32} {'-0.1 to 0.3':<18} own",
        f"{'policy/clip_fraction':<32} {'no band':<18} own",
    ]
    assert "loss/policy" in run_command("bands")[1]
    project.refresh_from_db()
    assert project.metric_bands == {"kl/reference": [-0.1, 0.3], "policy/clip_fraction": []}

    code, out, _err = run_command("bands", "kl/reference=default")
    assert code == 0
    assert "-0.05 to 0.5" in out
    assert run_command("bands", "kl/reference=0.3:0.1")[0] == 3
    with pytest.raises(CommandError, match="metric=least:most"):
        run_command("bands", "kl/reference=wide")


def test_a_band_of_one_algorithm_is_drawn_on_its_runs_alone(admin: Client, project: Project) -> None:
    grpo, dapo = (make_run(project, state="running", spec={"algorithm": name}) for name in ("grpo", "dapo"))

    def drawn(run: Run, name: str) -> object:
        found = page_data(admin, run)["bands"]
        assert isinstance(found, dict)
        return found.get(name)

    assert (drawn(grpo, "kl/reference"), drawn(dapo, "kl/reference")) == ([-0.05, 0.5], None), "of the catalogue"
    change, address = reverse("change-bands", args=[project.slug]), f"/api/projects/{project.slug}/bands"
    admin.post(change, {"metric": "kl/reference", "low": "0", "high": "2", "algorithm": "dapo"})
    assert (drawn(grpo, "kl/reference"), drawn(dapo, "kl/reference")) == ([-0.05, 0.5], [0.0, 2.0])

    body = {"bands": {"kl/reference": [0, 0.1]}}
    admin.patch(address, body, content_type="application/json")
    assert (drawn(grpo, "kl/reference"), drawn(dapo, "kl/reference")) == ([0.0, 0.1], [0.0, 2.0])
    (own,) = [b for b in admin.get(address, {"algorithm": "dapo"}).json()["bands"] if b["metric"] == "kl/reference"]
    assert (own["algorithm"], own["is_own"], own["high"]) == ("dapo", True, 2.0)
    page = admin.get(reverse("bands", args=[project.slug]), {"algorithm": "dapo"}).content.decode()
    assert "for this algorithm" in page

    admin.post(change, {"metric": "kl/reference", "reset": "1", "algorithm": "dapo"})
    assert drawn(dapo, "kl/reference") == [0.0, 0.1]
    admin.patch(address, {"bands": {"kl/reference": None}}, content_type="application/json")
    assert (drawn(grpo, "kl/reference"), drawn(dapo, "kl/reference")) == ([-0.05, 0.5], None)
    refused = admin.patch(address, body | {"algorithm": "alchemy"}, content_type="application/json")
    (problem,) = refused.json()["problems"]
    assert (refused.status_code, problem["field"]) == (422, "algorithm")
    assert "'alchemy' is not an algorithm. Use one of grpo, " in problem["message"]


def test_a_run_is_judged_by_the_own_bands_of_its_algorithm(admin: Client, project: Project) -> None:
    runs = [make_run(project, state="running", spec={"algorithm": name}) for name in ("grpo", "dapo")]
    body = {"bands": {"response/length_mean": [0, 100]}, "algorithm": "dapo"}
    admin.patch(f"/api/projects/{project.slug}/bands", body, content_type="application/json")
    for run in runs:
        report(run, *[metric(step, **{"response/length_mean": 150.0}) for step in range(1, 13)])
        Run.objects.filter(pk=run.pk).update(step=12)
        judge_next(now=NOW)

    found = [[mark["finding"] for mark in admin.get(f"/api/runs/{run.pk}/health").json()["marks"]] for run in runs]

    assert found == [[], ["band:response/length_mean"]]
