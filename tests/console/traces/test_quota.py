"""What uploads of a project may take together."""

import json
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from jobs.models import Capture, Layer
from tests.rows import make_project, make_run, make_user
from tests.trace_rows import make_trace

pytestmark = pytest.mark.django_db


def announce(client: Client, size: int) -> Any:
    body = json.dumps({"files": [{"name": "a.json.gz", "size": size}]})
    return client.post("/api/traces?project=theirs", body, content_type="application/json")


def test_a_project_takes_uploads_up_to_its_quota(tmp_path: Path, settings: Any) -> None:
    settings.FILES_DIR = tmp_path / "files"
    project = make_project("theirs")
    client = Client(headers={"Host": "localhost"})
    client.force_login(make_user("engineer", project=project), backend="django.contrib.auth.backends.ModelBackend")
    mib = 1 << 20
    trace = make_trace(project)
    layer = trace.layers.get()
    Layer.objects.filter(pk=layer.pk).update(size=10 * mib, facts=layer.facts | {"bytes": 5 * mib})
    run = make_run(project, state="finished")
    capture = Capture.objects.create(run=run, attempt=1, tool="torch", state="ready", first_step=3, num_steps=2)
    make_trace(project, run=run, capture=capture)  # goes with its run, and is no upload
    make_trace(make_project("other"))
    settings.MAX_PROJECT_TRACE_BYTES = 18 * mib

    assert announce(client, 3 * mib).status_code == 201
    refused = announce(client, mib)

    assert refused.status_code == 422
    (problem,) = refused.json()["problems"]
    assert problem["field"] == "files"
    assert "Uploaded traces of theirs take 18 MiB of 18 MiB, and these files have 1 MiB." in problem["message"]
    assert "PITWALL_MAX_PROJECT_TRACE_BYTES" in problem["message"]
    assert client.delete(f"/api/traces/{trace.pk}").status_code == 204
    assert announce(client, mib).status_code == 201


def test_a_file_that_failed_counts_with_what_is_here_of_it(tmp_path: Path, settings: Any) -> None:
    settings.FILES_DIR = tmp_path / "files"
    project = make_project("theirs")
    client = Client(headers={"Host": "localhost"})
    client.force_login(make_user("engineer", project=project), backend="django.contrib.auth.backends.ModelBackend")
    layer = make_trace(project).layers.get()
    Layer.objects.filter(pk=layer.pk).update(
        state="failed", size=1 << 30, received=3, facts={}, problem="The file has no times."
    )
    settings.MAX_PROJECT_TRACE_BYTES = 8

    assert announce(client, 6).status_code == 422
    assert announce(client, 5).status_code == 201
    assert "The file has no times." in client.get("/traces/").content.decode()
