"""Captures and their traces: each file that arrives becomes a layer, and the run says what became of it."""

import gzip
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from jobs.models import Capture, Layer, Run
from jobs.traces.imports import add_file, queue_lost, source_path, trace_folder
from tests.rows import make_artifact, make_project, make_run, make_user, signed_in
from tests.trace_rows import make_trace, torch_file

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, settings: Any) -> None:
    settings.FILES_DIR = tmp_path / "files"


@pytest.fixture
def run() -> Run:
    return make_run(make_project("theirs"), state="finished")


@pytest.mark.django_db(transaction=True)
def test_the_run_says_which_file_of_a_capture_left_nothing_on_the_timeline(run: Run) -> None:
    capture = Capture.objects.create(run=run, attempt=1, tool="torch", state="ready", first_step=3, num_steps=2)
    nothing = gzip.compress(b'{"schemaVersion": 1, "traceEvents": []}')
    for rank, data in enumerate((torch_file(), nothing)):
        file = make_artifact(run, f"policy-{rank}.json.gz", type="trace", capture=capture, is_ready=True)
        file.stored_path.parent.mkdir(parents=True, exist_ok=True)
        file.stored_path.write_bytes(data)
        add_file(file)

    client = signed_in(make_user("engineer", project=run.project))
    whole, empty = client.get(f"/api/runs/{run.pk}/captures/{capture.pk}").json()["files"]

    assert (whole["timeline"], whole["timeline_problem"]) == ("ready", "")
    assert empty["timeline"] == "failed"
    assert "holds no events" in empty["timeline_problem"]
    run.refresh_from_db()
    assert run.capture_changes == 2  # an open page reads them again


@pytest.mark.django_db(transaction=True)
def test_a_file_that_arrived_is_imported_by_itself(run: Run) -> None:
    capture = Capture.objects.create(run=run, attempt=1, tool="torch", state="importing", first_step=3, num_steps=2)
    file = make_artifact(run, "policy-0.json.gz", type="trace", capture=capture, meta={"role": "policy", "rank": 0})
    file.stored_path.parent.mkdir(parents=True, exist_ok=True)
    file.stored_path.write_bytes(torch_file())

    add_file(file)

    layer = Layer.objects.get()
    assert (layer.state, layer.problem, layer.facts["events"]) == ("ready", "", 3)


def test_samples_of_stacks_are_a_download_alone(run: Run) -> None:
    capture = Capture.objects.create(run=run, attempt=1, tool="stacks", state="ready", first_step=3, num_steps=2)
    file = make_artifact(run, "policy-0.stacks.txt", type="trace", capture=capture, is_ready=True)

    add_file(file)
    queue_lost(now=timezone.now())

    assert not Layer.objects.exists()


def test_the_trace_of_a_capture_goes_with_it_and_not_alone(run: Run) -> None:
    capture = Capture.objects.create(run=run, attempt=1, tool="torch", state="ready", first_step=3, num_steps=2)
    trace = make_trace(run.project, run=run, capture=capture)
    folder = trace_folder(trace)

    client = signed_in(make_user("engineer", project=run.project))
    alone = client.delete(f"/api/traces/{trace.pk}")
    assert alone.status_code == 409
    assert capture.pk in alone.json()["problems"][0]["message"]
    assert folder.is_relative_to(source_path(trace.layers.get()).parents[2])
    assert client.get(f"/api/runs/{run.pk}/captures/{capture.pk}").json()["trace_url"] == f"/traces/{trace.pk}"
