"""Sweeps through HTTP: pages, the New run form, the API and the command line."""

import json
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError
from django.test import Client
from django.urls import reverse

from console.command_line import api_client
from console.forms.new_run.form import default_spec, spec_to_form
from console.sign_in.api_token import make_token
from jobs.catalog.spec.parse import Problem
from jobs.models import Attempt, Frame, Metric, Project, Run, Study
from jobs.telemetry.frames import encode_frame
from profiling.events import metric
from tests.console.commands import run_command
from tests.jobs.sweeps.test_sweeps import RATE, make_study, runs_of
from tests.rows import NOW, make_project, make_user

pytestmark = pytest.mark.django_db

SWEEP = {
    "sweep.on": "1",
    "sweep.method": "grid",
    "sweep.knobs.0.id": RATE,
    "sweep.knobs.0.values": "1e-4, 3e-4; 1e-3",
    "sweep.knobs.2.id": "train.seed",
    "sweep.knobs.2.values": "0 1",
    "sweep.max_concurrent": "2",
    "sweep.seed": "0",
}


@pytest.fixture
def project() -> Project:
    return make_project("maths")


def signed_in(project: Project, role: str = "editor") -> Client:
    client = Client(headers={"Host": "localhost"})
    client.force_login(make_user(project=project, role=role), backend="django.contrib.auth.backends.ModelBackend")
    return client


@pytest.fixture
def editor(project: Project) -> Client:
    return signed_in(project)


@pytest.fixture(autouse=True)
def _no_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trying model and data has tests of its own."""
    monkeypatch.setattr("console.sweep_launch.check_sweep", lambda *_args, **_options: [])


def form(**changes: str) -> dict[str, str]:
    return spec_to_form(default_spec()) | {"name": "math", "idempotency_key": "k"} | SWEEP | changes


def report(run: Run, *values: float, name: str = "reward/mean") -> None:
    """Put points of the driver's metric into the run's frames, as ingest does."""
    Metric.objects.get_or_create(run=run, kind="metric", name=name, role="driver", rank=0)
    for step, value in enumerate(values, start=1):
        payload = encode_frame(
            seq=step, attempt=1, events=[metric({name: value}, attempt=1, step=step, t=step)], logs=[]
        )
        Frame.objects.create(run=run, seq=step, attempt=1, batch=step, at=NOW, payload=payload)
    Run.objects.filter(pk=run.pk).update(seq=len(values), step=len(values), latest_values={name: values[-1]})


def test_the_form_tells_what_it_would_launch(editor: Client) -> None:
    answer = editor.post(reverse("new-run-sweep"), form()).json()

    assert answer["problems"] == []
    assert answer["launch"] == "Launch 6 runs, 2 at once"
    assert "6 runs" in answer["summary"]
    assert "2 at once ask for 4 CPUs" in answer["summary"]
    assert f"--knob {RATE}=1e-4,3e-4,1e-3 --knob train.seed=0,1" in answer["commands"]["cli"]
    assert Study.objects.count() == 0


def test_the_form_tells_each_problem_at_its_row(editor: Client) -> None:
    wrong = {"sweep.knobs.2.values": "0 x", "sweep.knobs.0.id": "learning_rat", "sweep.seed": "-3"}

    answer = editor.post(reverse("new-run-sweep"), form(**wrong)).json()

    told = {p["field"]: p["message"] for p in answer["problems"]}
    assert set(told) == {"sweep.knobs.0.id", "sweep.knobs.2.values", "sweep.seed"}
    assert told["sweep.knobs.2.values"].startswith("'x' is not allowed for Seed.")


def test_the_form_launches_once_and_leads_to_the_sweep(editor: Client, project: Project) -> None:
    first = editor.post(reverse("new-run-sweep-launch"), form())
    again = editor.post(reverse("new-run-sweep-launch"), form())
    other = editor.post(reverse("new-run-sweep-launch"), form(**{"sweep.knobs.2.values": "0 2"}))

    study = Study.objects.get()
    assert (first.status_code, first.json()) == (201, {"url": f"/tune/{study.pk}"})
    assert again.json() == first.json()
    assert other.status_code == 422
    assert "already launched another sweep" in other.json()["problems"][0]["message"]
    assert [run.name for run in runs_of(study)][:2] == ["math · lr=1e-4, seed=0", "math · lr=1e-4, seed=1"]


def test_what_the_world_has_against_a_point_stops_them_all(editor: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = Problem(field="sweep.knobs.1.values", message="With seed=1: no.")
    monkeypatch.setattr("console.sweep_launch.check_sweep", lambda *_args, **_options: [problem])

    answer = editor.post(reverse("new-run-sweep-launch"), form())

    assert answer.status_code == 422
    assert answer.json() == {"problems": [{"field": "sweep.knobs.2.values", "message": "With seed=1: no."}]}
    assert Run.objects.count() == 0


def test_the_pages_show_values_bests_and_what_one_may_do(editor: Client, project: Project) -> None:
    study = make_study(project, user=make_user("ada"))
    first, second, *_rest = runs_of(study)
    report(first, 0.2, 0.6, 0.5)
    report(second, 0.1, 0.9, 0.4)

    page = editor.get(reverse("study", args=[study.pk])).content.decode()
    listed = editor.get(reverse("tune")).content.decode()

    assert f'<tr data-run="{second.pk}" data-best>' in page
    assert f'href="/runs/new?from={second.pk}"' in page
    assert '<span class="framed">1e-4</span>' in page
    assert "Stop all" in page
    assert all(text in listed for text in (study.pk, "lr=3e-4", ">0.9 <", "ada", "1e-4, 3e-4, 0.001, 0.003"))
    assert " style=" not in page + listed
    compared = editor.get(f"/compare?study={study.pk}&group={RATE}").content.decode()
    assert f'href="/compare?study={study.pk}&amp;group={RATE}"' in page
    assert all(run.pk in compared for run in runs_of(study))
    viewer = signed_in(project, "viewer").get(reverse("study", args=[study.pk])).content.decode()
    assert "Stop all" not in viewer
    assert "from=" not in viewer


def test_a_sweep_tells_what_its_knobs_do_and_what_a_level_took(editor: Client, project: Project) -> None:
    study = make_study(project)
    first, second, *_rest = runs_of(study)
    for run, values in ((first, (0.1, 0.2, 0.3, 0.3, 0.3)), (second, (0.5, 0.5, 0.6, 0.7, 0.8, 0.9))):
        report(run, *values)
    address = reverse("study", args=[study.pk])

    page = editor.get(address, {"step": "2", "target": "0.6"}).content.decode()
    wrong = editor.get(address, {"step": "two", "target": "high"}).content.decode()

    data = json.loads(page.split('id="tune-points" type="application/json">')[1].split("</script>")[0])
    assert {"at", "best", RATE} <= {column["id"] for column in data["columns"]}
    one, two = data["runs"][:2]
    assert (one["values"]["at"], two["values"]["at"]) == (0.2, 0.5)
    assert (one["values"][RATE], one["values"]["best"]) == (1e-4, 0.3)
    assert "Not enough runs to tell: 2 runs have a value, at least 7 are needed." in page
    assert page.count("not reached") == 3
    assert "step 5" in page
    assert "not reached" not in wrong
    answer = editor.get(f"/api/studies/{study.pk}").json()
    assert [(share["knob"], share["needed"], share["share"]) for share in answer["importance"]] == [(RATE, 7, None)]


def test_stop_all_speaks_only_of_runs_there_are(editor: Client, project: Project) -> None:
    study = make_study(project)
    runs = runs_of(study)

    def said() -> str:
        page = editor.get(reverse("study", args=[study.pk])).content.decode()
        return page.split('data-part="stop-text"><p>')[1].split("</p>")[0].strip()

    assert said() == f"{len(runs)} queued: they leave the queue and never start."
    Run.objects.filter(study=study).update(state="finished")
    Run.objects.filter(pk=runs[0].pk).update(state="running")
    assert said() == (
        "1 running: it saves a checkpoint after its current step and then ends, and can be resumed from there. "
        "Runs that have ended keep what they have."
    )


def test_another_metric_and_the_lowest_loss(project: Project) -> None:
    study = make_study(project)
    first, second, *_rest = runs_of(study)
    report(first, 0.9, 0.7, name="eval/loss")
    report(second, 0.8, 0.75, name="eval/loss")
    client = signed_in(project, "viewer")

    table = client.get(f"/api/studies/{study.pk}?metric=eval/loss").json()

    assert (table["study"]["best"], table["study"]["best_run"]) == (0.7, first.pk)
    assert [(row["last"], row["best"], row["best_step"]) for row in table["runs"][:3]] == [
        (0.7, 0.7, 2),
        (0.75, 0.75, 2),
        (None, None, None),
    ]
    assert table["metrics"] == ["eval/loss"]


def test_the_run_list_shows_a_sweeps_runs(editor: Client, project: Project) -> None:
    study, other = make_study(project), make_study(project, name="other")

    page = editor.get(reverse("runs"), {"q": f"sweep:{study.pk}"}).content.decode()

    assert all(run.pk in page for run in runs_of(study))
    assert not any(run.pk in page for run in runs_of(other))
    assert f'href="/tune/{study.pk}"' in page


def test_the_api_launches_reads_changes_and_stops(editor: Client, project: Project) -> None:
    body = {
        "spec": {"name": "rates"},
        "sweep": {"knobs": [{"id": RATE, "values": [1e-4, 1e-3]}], "max_concurrent": 2},
    }
    headers = {"Idempotency-Key": "once"}

    made = editor.post("/api/studies", body, content_type="application/json", headers=headers)
    again = editor.post("/api/studies", body, content_type="application/json", headers=headers)

    study_id = made.json()["study"]["id"]
    address = f"/api/studies/{study_id}"
    assert (made.status_code, again.status_code, again.json()["study"]["id"]) == (201, 200, study_id)
    assert made.json()["runs"] == [run.pk for run in runs_of(Study.objects.get())]
    assert made.json()["url"].endswith(f"/tune/{study_id}")
    assert editor.get("/api/studies").json()["studies"][0]["id"] == study_id
    changed = editor.patch(address, {"max_concurrent": 1}, content_type="application/json")
    assert changed.json()["max_concurrent"] == 1
    refused = editor.patch(address, {"max_concurrent": "many"}, content_type="application/json")
    assert (refused.status_code, refused.json()["problems"][0]["field"]) == (422, "max_concurrent")
    stopped = editor.post(f"{address}/stop").json()
    assert (stopped["num_stopped"], stopped["study"]["state"]) == (2, "stopped")
    assert editor.post(f"{address}/stop").json()["num_stopped"] == 0


def test_viewers_read_and_strangers_see_nothing(project: Project) -> None:
    study = make_study(project)
    viewer, stranger = signed_in(project, "viewer"), signed_in(make_project())
    deeds = (
        ("post", "/api/studies?project=maths", {"spec": {}, "sweep": {"knobs": [{"id": RATE, "values": [1]}]}}),
        ("post", f"/api/studies/{study.pk}/stop", {}),
        ("patch", f"/api/studies/{study.pk}", {"max_concurrent": 2}),
    )

    assert viewer.get(f"/api/studies/{study.pk}").status_code == 200
    assert viewer.post(reverse("new-run-sweep-launch"), form()).status_code == 403
    for method, address, body in deeds:
        assert getattr(viewer, method)(address, body, content_type="application/json").status_code == 403
        assert getattr(stranger, method)(address, body, content_type="application/json").status_code == 404
    for address in (f"/api/studies/{study.pk}", f"/tune/{study.pk}"):
        assert stranger.get(address).status_code == 404
    assert study.pk not in stranger.get("/tune").content.decode()
    assert Run.objects.filter(state="queued").count() == 4


@pytest.fixture
def shell(served_here: None, monkeypatch: pytest.MonkeyPatch, project: Project) -> None:
    monkeypatch.setenv("PITWALL_API_TOKEN", make_token(user=make_user("ada", project=project), name="cli")[1])


def sweep(tmp_path: Path, *options: str, spec: Any = None) -> tuple[int, str, str]:
    path = tmp_path / "spec.json"
    path.write_text(json.dumps(spec or {}))
    return run_command("sweep", str(path), *options)


def test_the_command_launches_follows_and_prints_a_table(
    shell: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def end_all(_seconds: float) -> None:
        first = runs_of(Study.objects.get())[0]
        report(first, 0.25, 0.5)
        Run.objects.update(state="finished")
        Attempt.objects.update(state="finished")

    monkeypatch.setattr(api_client.time, "sleep", end_all)

    code, out, _err = sweep(tmp_path, "--knob", f"{RATE}=1e-4,3e-4", "--at-once", "2", "--wait")

    study = Study.objects.get()
    lines = out.splitlines()
    assert (code, study.max_concurrent) == (0, 2)
    assert lines[0].startswith(f"{study.pk} queued: http")
    assert lines[1:3] == ["queued: 2 queued of 2", "finished: 2 finished of 2"]
    assert lines[3].split() == ["run", "lr", "state", "step", "Reward,", "last", "best"]
    assert lines[4].split()[1:] == ["1e-4", "finished", "2/60", "0.5", "0.5", "*"]
    assert lines[5].split()[1:] == ["3e-4", "finished", "0/60", "—", "—"]


def test_the_command_draws_from_ranges(shell: None, tmp_path: Path) -> None:
    code, _out, _err = sweep(tmp_path, "--knob", f"{RATE}=1e-5..1e-3:log", "--random", "3", "--seed", "5")

    study = Study.objects.get()
    assert code == 0
    assert study.knobs == [{"id": RATE, "low": 1e-5, "high": 1e-3, "scale": "log"}]
    assert (study.method, study.num_runs, study.seed) == ("random", 3, 5)


def test_the_command_says_what_is_wrong(shell: None, tmp_path: Path) -> None:
    code, _out, err = sweep(tmp_path, "--knob", f"{RATE}=2")

    assert code == 3
    assert "sweep.knobs.0.values: '2' is not allowed for Learning rate. Use a number from 0 to 1." in err
    with pytest.raises(CommandError, match="no knob with values"):
        sweep(tmp_path, "--knob", RATE)


def test_a_sweep_without_knobs_has_a_page(editor: Client, project: Project) -> None:
    study = make_study(project)
    Study.objects.filter(pk=study.pk).update(knobs=[])  # only a row written by hand is like that

    page = editor.get(reverse("study", args=[study.pk]))

    assert page.status_code == 200
    assert f'/compare?study={study.pk}"' in page.content.decode()
