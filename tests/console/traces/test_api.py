"""Traces over the API: upload in pieces, import in a process of its own, what a timeline asks for, what is refused."""

import json
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import AbstractUser
from django.test import Client
from django.utils import timezone

from jobs.captures.captures import apply_events
from jobs.models import AuditEvent, Capture, Layer, Trace
from jobs.traces import uploads as traces
from jobs.traces.imports import import_layer, queue_lost, source_path, store_path, trace_folder
from profiling import events
from tests.console.fake_runner import content
from tests.rows import make_artifact, make_project, make_run, make_user, signed_in
from tests.trace_rows import BEGIN, MS, make_layer, make_trace, torch_file

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, settings: Any) -> None:
    settings.FILES_DIR = tmp_path / "files"


@pytest.fixture
def person() -> AbstractUser:
    return make_user("engineer", project=make_project("theirs"))


@pytest.fixture
def client(person: AbstractUser) -> Client:
    return signed_in(person)


@pytest.fixture
def trace(person: AbstractUser) -> Trace:
    return make_trace(person.membership_set.get().project)  # type: ignore[attr-defined]  # a reverse relation


def announce(client: Client, *files: tuple[str, int], **about: Any) -> Any:
    body = {"files": [{"name": name, "size": size} for name, size in files], **about}
    return client.post("/api/traces?project=theirs", json.dumps(body), content_type="application/json")


def send(client: Client, trace: str, layer: int, data: bytes, *, offset: int = 0) -> Any:
    address = f"/api/traces/{trace}/layers/{layer}/content?offset={offset}"
    return client.put(address, data, content_type="application/octet-stream")


def test_a_file_comes_in_pieces_is_imported_and_can_be_looked_at(client: Client) -> None:
    data = torch_file()
    made = announce(client, ("../rank 0.json.gz", len(data)))
    trace, layer = made.json()["id"], made.json()["layers"][0]["id"]

    assert (made.status_code, made.json()["layers"][0]["file_name"]) == (201, "rank 0.json.gz")
    wrong = send(client, trace, layer, data, offset=5)
    assert wrong.status_code == 409
    assert "0 bytes have arrived" in wrong.json()["problems"][0]["message"]
    half = send(client, trace, layer, data[:60])
    assert (half.status_code, half.json()["received"], half.json()["state"]) == (200, 60, "uploading")
    assert send(client, trace, layer, data[60:] + b"more", offset=60).status_code == 422
    assert send(client, trace, layer, data[60:], offset=60).json()["state"] == "queued"
    import_layer(layer_id=layer)

    found = client.get(f"/api/traces/{trace}").json()["layers"][0]
    assert (found["state"], found["kind"], found["events"], found["problem"]) == ("ready", "torch", 3, "")
    detail = client.get(f"/api/traces/{trace}/layers/{layer}").json()
    assert [step["number"] for step in detail["steps"]] == [3]
    download = client.get(found["download_url"])
    assert content(download) == data
    assert "rank%200.json.gz" in download["Content-Disposition"] or "rank 0.json.gz" in download["Content-Disposition"]
    assert AuditEvent.objects.filter(verb="trace.create", object_id=trace).exists()
    assert sorted(p.name for p in trace_folder(Trace.objects.get(pk=trace)).iterdir()) == sorted(
        [str(layer), f"{layer}.lock", f"{layer}.store"]
    )


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ({"files": []}, "It is empty. Give at least 1"),
        ({"files": [{"name": "a.json", "size": 0}]}, "a.json is empty"),
        ({"files": [{"name": "a.json", "size": 2**50}]}, "larger than"),
        ({"files": [{"name": "a\x07.json", "size": 5}]}, "is not a file name"),
        ({"files": [{"name": "a/..", "size": 5}]}, "is not a file name"),
        ({"files": [{"name": "a.json", "size": 5}], "name": "two\nlines"}, "is not a name"),
        ({"files": [{"name": "a.json", "size": 5}] * 65}, "65 files are announced"),
        ({"files": [{"name": "a.json", "size": 5}], "run": "r-none"}, "There is no run"),
        ({"files": [{"name": "a.json", "size": 5, "path": "/etc"}]}, "There is no field 'path'"),
    ],
)
def test_what_cannot_be_a_trace_is_refused_in_a_sentence(client: Client, body: dict[str, Any], word: str) -> None:
    answer = client.post("/api/traces?project=theirs", json.dumps(body), content_type="application/json")

    assert answer.status_code == 422
    assert word in str(answer.json()["problems"])
    assert not Trace.objects.exists()


def test_a_file_of_no_known_kind_is_refused_with_its_first_piece(client: Client) -> None:
    data = b"\x7fELF" + bytes(500)
    made = announce(client, ("prog.json", len(data))).json()

    answer = send(client, made["id"], made["layers"][0]["id"], data)

    assert answer.status_code == 422
    assert "no format that can be read" in answer.json()["problems"][0]["message"]
    layer = Layer.objects.get()
    assert (layer.state, "no format" in layer.problem) == ("failed", True)
    assert not source_path(layer).exists()


def test_a_damaged_file_fails_with_a_sentence_and_can_be_imported_again(client: Client) -> None:
    data = torch_file()[:-40]
    made = announce(client, ("rank0.json.gz", len(data))).json()
    layer = made["layers"][0]["id"]
    send(client, made["id"], layer, data)
    import_layer(layer_id=layer)

    row = Layer.objects.get()
    if row.state == "failed":
        assert row.problem
        assert not store_path(row).exists()
        again = client.post(f"/api/traces/{made['id']}/layers/{layer}/import")
        assert again.json()["state"] == "queued"
    else:  # what could still be read is shown, with a note
        assert client.get(f"/api/traces/{made['id']}/layers/{layer}").json()["notes"]


def test_a_layer_whose_importer_was_killed_is_given_away_and_ends_whole(client: Client) -> None:
    data = torch_file()
    made = announce(client, ("rank0.json.gz", len(data))).json()
    layer = made["layers"][0]["id"]
    send(client, made["id"], layer, data)
    row = Layer.objects.select_related("trace").get()
    half_imported = trace_folder(row.trace) / f".import-{layer}-dead"
    half_imported.mkdir()
    (half_imported / "store").write_bytes(b"half")
    long_ago = timezone.now() - timezone.timedelta(minutes=2)
    Layer.objects.filter(pk=layer).update(state="importing", claim="dead", seen_at=long_ago, tries=1)

    import_layer(layer_id=layer)  # sent again, too early: it is still somebody's
    assert Layer.objects.get().state == "importing"
    queue_lost(now=timezone.now())
    assert Layer.objects.get().state == "queued"
    import_layer(layer_id=layer)

    row.refresh_from_db()
    assert (row.state, row.tries, row.claim) == ("ready", 2, "")
    assert store_path(row).is_file()
    assert not half_imported.exists()


def test_an_import_that_breaks_off_again_and_again_is_given_up(trace: Trace) -> None:
    long_ago = timezone.now() - timezone.timedelta(minutes=2)
    trace.layers.update(state="importing", claim="dead", seen_at=long_ago, tries=3)
    store_path(trace.layers.get()).unlink()  # it was never imported

    queue_lost(now=timezone.now())

    layer = trace.layers.get()
    assert layer.state == "failed"
    assert "stopped 3 times" in layer.problem


def test_an_upload_that_nobody_finished_fails_after_a_day(client: Client) -> None:
    made = announce(client, ("rank0.json.gz", 500)).json()
    queue_lost(now=timezone.now())
    assert Layer.objects.get().state == "uploading"

    queue_lost(now=timezone.now() + timezone.timedelta(days=2))

    found = client.get(f"/api/traces/{made['id']}").json()["layers"][0]
    assert (found["state"], "never arrived" in found["problem"]) == ("failed", True)


def test_files_of_a_capture_become_layers_of_its_trace(person: AbstractUser) -> None:
    project = person.membership_set.get().project  # type: ignore[attr-defined]  # a reverse relation
    run = make_run(project, state="finished")
    capture = Capture.objects.create(run=run, attempt=1, tool="torch", state="ready", first_step=3, num_steps=2)
    meta = {"role": "policy", "rank": 1}
    make_artifact(run, "traces/c/policy-1.json.gz", type="trace", capture=capture, meta=meta)

    queue_lost(now=timezone.now())
    queue_lost(now=timezone.now())

    layer = Layer.objects.get()
    assert (layer.trace.capture, layer.trace.run, layer.state) == (capture, run, "queued")
    assert (layer.role, layer.rank, layer.file_name) == ("policy", 1, "policy-1.json.gz")


def test_a_capture_can_be_looked_at_as_soon_as_it_records(person: AbstractUser) -> None:
    project = person.membership_set.get().project  # type: ignore[attr-defined]  # a reverse relation
    run = make_run(project, state="running")
    capture = Capture.objects.create(run=run, attempt=1, tool="torch", state="armed")
    told = events.capture(capture.pk, "recording", attempt=1, step=3)

    apply_events(run_id=run.pk, attempt=1, events=[told], now=timezone.now())

    assert Trace.objects.get(capture=capture).project == project


@pytest.mark.django_db(transaction=True)
def test_a_deleted_capture_takes_its_trace_along(client: Client, person: AbstractUser) -> None:
    project = person.membership_set.get().project  # type: ignore[attr-defined]  # a reverse relation
    run = make_run(project, state="finished")
    capture = Capture.objects.create(run=run, attempt=1, tool="torch", state="ready", first_step=3, num_steps=2)
    folder = trace_folder(make_trace(project, run=run, capture=capture))
    assert folder.is_dir()

    assert client.delete(f"/api/runs/{run.pk}/captures/{capture.pk}").status_code == 204

    assert not folder.exists()
    assert not Trace.objects.exists()


@pytest.mark.parametrize("data", [b"SQLite format 3\0" + bytes(200), b"PK\3\4" + bytes(200)])
def test_databases_and_archives_are_opened_by_the_importer_alone(
    client: Client, data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(path: Path) -> None:
        raise AssertionError(f"{path} was opened in the web process")

    monkeypatch.setattr(traces, "reader_of", never)
    made = announce(client, ("a.sqlite", len(data))).json()
    trace, layer = made["id"], made["layers"][0]["id"]
    assert send(client, trace, layer, data[:100]).json()["state"] == "uploading"
    assert send(client, trace, layer, data[100:], offset=100).json()["state"] == "queued"
    import_layer(layer_id=layer)
    found = client.get(f"/api/traces/{trace}").json()["layers"][0]
    assert found["state"] == "failed"
    assert found["problem"]


def test_a_disk_that_has_filled_since_takes_no_piece(
    client: Client, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    data = torch_file()
    made = announce(client, ("a.json.gz", len(data))).json()
    usage = shutil.disk_usage("/")._replace(free=settings.MIN_FREE_BYTES + 10)
    monkeypatch.setattr("jobs.storage.floor.shutil.disk_usage", lambda _path: usage)

    refused = send(client, made["id"], made["layers"][0]["id"], data)

    assert refused.status_code == 507
    assert "has 512 MiB free, and 512 MiB of it are kept free" in refused.json()["problems"][0]["message"]


@pytest.mark.django_db(transaction=True)
def test_deleting_leaves_nothing_on_disk(client: Client, trace: Trace) -> None:
    folder = trace_folder(trace)
    assert folder.is_dir()

    assert client.delete(f"/api/traces/{trace.pk}").status_code == 204

    assert not folder.exists()
    assert not Layer.objects.exists()
    assert client.get(f"/api/traces/{trace.pk}").status_code == 404


def test_tiles_of_an_import_are_for_ever_and_hold_what_the_store_holds(client: Client, trace: Trace) -> None:
    layer = trace.layers.get()
    origin = int(layer.facts["origin"])
    level = 19  # 268 ms a tile
    address = f"/api/traces/{trace.pk}/layers/{layer.pk}/tiles/{level}/{(BEGIN - origin) >> (level + 9)}"
    address += f"?made={client.get(f'/api/traces/{trace.pk}/layers/{layer.pk}').json()['made']}"

    answer = client.get(address)

    assert answer["Cache-Control"] == "private, max-age=31536000, immutable"
    (size,) = struct.unpack("<I", answer.content[:4])
    header = json.loads(answer.content[4 : 4 + size])
    assert (header["exact"], header["level"]) == (True, level)
    assert set(header["names"]) >= {"aten::mm", "gemm<128>"}
    assert client.get(address, headers={"If-None-Match": answer["ETag"]}).status_code == 304
    only = client.get(f"{address}&lanes=1").content
    (size,) = struct.unpack("<I", only[:4])
    assert "aten::mm" not in json.loads(only[4 : 4 + size])["names"]


@pytest.mark.parametrize("rest", ["61/0", "3/99999999999999999999", "3/1?lanes=x", "3/1?lanes=99"])
def test_a_tile_that_cannot_be_is_refused(client: Client, trace: Trace, rest: str) -> None:
    answer = client.get(f"/api/traces/{trace.pk}/layers/{trace.layers.get().pk}/tiles/{rest}")

    assert answer.status_code in (404, 422)
    assert answer.json()["problems"][0]["message"]


def test_a_summary_adds_up_what_lies_in_the_window(client: Client, trace: Trace) -> None:
    begin, end = BEGIN, BEGIN + 100 * MS

    found = client.get(f"/api/traces/{trace.pk}/summary?from={begin}&to={end}").json()

    names = {name["name"]: name for name in found["names"]}
    assert found["count"] == 1 + 30 + 1
    assert (names["gemm<128>"]["count"], names["gemm<128>"]["total"]) == (10, 40 * MS)
    (device,) = found["devices"]
    assert (device["busy"], device["communication"], device["overlapped"]) == (42 * MS, 2 * MS, 0)
    assert (device["kernels"], device["median_kernel"], device["longest_gap"]) == (10, 4 * MS, 6 * MS)
    half = client.get(f"/api/traces/{trace.pk}/summary?from={begin + 4 * MS}&to={begin + 5 * MS}").json()
    assert {name["name"]: name["total"] for name in half["names"]} == {"gemm<128>": MS, "ProfilerStep#3": MS}
    assert client.get(f"/api/traces/{trace.pk}/summary?from=5&to=5").status_code == 422
    assert client.get(f"/api/traces/{trace.pk}/summary?from=5&to=9&lanes=1").status_code == 422


def test_a_search_finds_names_and_goes_from_hit_to_hit_round_nothing(client: Client, trace: Trace) -> None:
    found = client.get(f"/api/traces/{trace.pk}/search?q=GEMM").json()["found"]
    assert [(one["name"], one["events"], one["total"]) for one in found] == [("gemm<128>", 20, 80 * MS)]

    base = f"/api/traces/{trace.pk}/hits?q=gemm"
    first = client.get(f"{base}&at={BEGIN}").json()
    second = client.get(f"{base}&at={first['begin']}").json()
    back = client.get(f"{base}&at={second['begin']}&back=true").json()
    assert int(first["begin"]) == BEGIN + 2 * MS
    assert int(second["begin"]) == BEGIN + 12 * MS
    assert back["event"] == first["event"]
    assert client.get(f"{base}&at={BEGIN + 10**12}").json()["event"] is None
    assert client.get(f"/api/traces/{trace.pk}/search?q=%25%27%3B--").json() == {"found": []}


def test_an_event_says_its_arguments_and_what_it_belongs_to(client: Client, trace: Trace) -> None:
    layer = trace.layers.get().pk
    kernel = client.get(f"/api/traces/{trace.pk}/hits?q=gemm&at=0").json()["event"]

    found = client.get(f"/api/traces/{trace.pk}/layers/{layer}/events/{kernel}").json()

    assert (found["name"], found["category"], found["duration"]) == ("gemm<128>", "kernel", 4 * MS)
    assert [one["name"] for one in found["linked"]] == ["cudaLaunchKernel"]
    assert client.get(f"/api/traces/{trace.pk}/layers/{layer}/events/999999").status_code == 404


def test_counters_are_thinned_so_that_extremes_stay(client: Client, trace: Trace) -> None:
    address = f"/api/traces/{trace.pk}/layers/{trace.layers.get().pk}/series/0?from={BEGIN}&to={BEGIN + 200 * MS}"

    whole, few = client.get(address).json(), client.get(f"{address}&points=10").json()

    assert (len(whole["t"]), whole["of"], whole["v"][-1]) == (50, 50, 49_000.0)
    assert len(few["t"]) <= 10
    assert (min(few["v"]), max(few["v"])) == (0.0, 49_000.0)


def test_a_layer_that_is_not_ready_says_so(client: Client, trace: Trace) -> None:
    waiting = make_layer(trace, state="importing", seen_at=timezone.now())

    answer = client.get(f"/api/traces/{trace.pk}/layers/{waiting.pk}")

    assert answer.status_code == 409
    assert "importing" in answer.json()["problems"][0]["message"]


def test_pages_show_hostile_names_as_text(client: Client, person: AbstractUser) -> None:
    project = person.membership_set.get().project  # type: ignore[attr-defined]  # a reverse relation
    name = "</script><script>alert(1)</script>"
    trace = make_trace(project, name=name)
    trace.layers.update(file_name=f"{name}.json", problem=name)

    for address in ("/traces/", f"/traces/{trace.pk}", f"/traces/{trace.pk}/files"):
        answer = client.get(address)
        assert answer.status_code == 200
        assert b"<script>alert(1)" not in answer.content


@pytest.mark.parametrize("name", ["../../x.json", "/etc/passwd", "a/../../b.json", "..\\..\\c.json", "x" * 300])
def test_no_name_of_a_file_leads_out_of_the_traces_folder(client: Client, tmp_path: Path, name: str) -> None:
    data = torch_file()
    made = announce(client, (name, len(data))).json()
    send(client, made["id"], made["layers"][0]["id"], data)

    outside = [p for p in tmp_path.rglob("*") if p.is_file() and not p.is_relative_to(tmp_path / "files" / "traces")]
    assert outside == []
    assert "/" not in Layer.objects.get().file_name


def test_a_trace_says_whether_its_times_are_those_of_a_clock(client: Client, person: AbstractUser) -> None:
    trace = make_trace(person.membership_set.get().project)  # type: ignore[attr-defined]  # a reverse relation
    assert client.get(f"/api/traces/{trace.pk}").json()["has_clock"] is True

    make_layer(trace)
    trace.layers.filter(pk=trace.layers.earliest("pk").pk).update(facts={"begin": 0, "end": 5, "has_clock": False})
    dated = client.get(f"/api/traces/{trace.pk}").json()
    assert dated["has_clock"] is True  # one of two
    assert dated["begin"] != "0"

    trace.layers.update(facts={"begin": 0, "end": 5, "has_clock": False})
    assert client.get(f"/api/traces/{trace.pk}").json()["has_clock"] is False
