"""`manage.py trace`: files go through the API in pieces, problems are said, what is there is listed."""

import gzip
import json
from pathlib import Path

import pytest
from django.core.management import CommandError

from console.command_line import api_client
from console.command_line.api_json import TraceJson
from console.sign_in.api_token import make_token
from jobs.models import Layer, Project, Trace
from jobs.traces.imports import import_layer, source_path
from tests.console.commands import run_command
from tests.rows import make_project, make_user
from tests.trace_rows import BEGIN, make_trace

pytestmark = pytest.mark.django_db


@pytest.fixture
def project(served_here: None, monkeypatch: pytest.MonkeyPatch) -> Project:
    """The project of the command's person; what is uploaded is imported as soon as it is followed."""
    project = make_project("pit")
    monkeypatch.setenv("PITWALL_API_TOKEN", make_token(user=make_user("ada", project=project), name="cli")[1])
    monkeypatch.setattr(api_client, "_PIECE_BYTES", 64)
    followed = api_client.ApiClient.follow_trace

    def follow(client: api_client.ApiClient, trace_id: str, **more: object) -> TraceJson:
        for pk in Layer.objects.filter(trace=trace_id, state="queued").values_list("pk", flat=True):
            import_layer(layer_id=pk)
        return followed(client, trace_id, **more)  # type: ignore[arg-type]  # passed on as they came

    monkeypatch.setattr(api_client.ApiClient, "follow_trace", follow)
    return project


def write_trace(path: Path) -> Path:
    event = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 7, "tid": 1, "ts": 10, "dur": 50}
    whole = {"schemaVersion": 1, "baseTimeNanoseconds": BEGIN, "traceEvents": [event]}
    path.write_bytes(gzip.compress(json.dumps(whole).encode()))
    return path


def test_files_become_one_trace_whole(project: Project, tmp_path: Path) -> None:
    files = [write_trace(tmp_path / f"rank{i}.json.gz") for i in range(2)]

    code, out, err = run_command("trace", *map(str, files), "--name", "two ranks")

    trace = Trace.objects.get()
    assert (code, err) == (0, "")
    assert (trace.project, trace.name, trace.layers.count()) == (project, "two ranks", 2)
    assert [source_path(layer).read_bytes() for layer in trace.layers.order_by("pk")] == [f.read_bytes() for f in files]
    assert "rank1.json.gz: ready, 1 events" in out
    assert f"/traces/{trace.pk}" in out


def test_of_a_folder_the_files_are_taken_in_order(project: Project, tmp_path: Path) -> None:
    for name in ("rank1.json.gz", "rank0.json.gz", ".part"):
        write_trace(tmp_path / name)
    (tmp_path / "older").mkdir()

    assert run_command("trace", str(tmp_path))[0] == 0
    layers = Trace.objects.get().layers.order_by("pk")
    assert [layer.file_name for layer in layers] == ["rank0.json.gz", "rank1.json.gz"]
    with pytest.raises(CommandError, match="older holds no file"):
        run_command("trace", str(tmp_path / "older"))


@pytest.mark.usefixtures("project")
def test_what_cannot_be_read_is_refused_in_a_sentence(tmp_path: Path) -> None:
    bad = tmp_path / "notes.txt"
    bad.write_text("nothing")

    code, _out, err = run_command("trace", str(bad))

    assert code == 3
    assert "no format that can be read" in err


@pytest.mark.usefixtures("project")
def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(CommandError, match=r"nowhere\.json is no file"):
        run_command("trace", "nowhere.json")


def test_without_files_it_lists_what_is_there(project: Project) -> None:
    trace = make_trace(project, name="older")

    code, out, _err = run_command("trace")

    assert code == 0
    assert trace.pk in out
    assert "ready" in out
    assert "older" in out
