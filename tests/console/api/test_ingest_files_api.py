"""The runners' ingest endpoint: what to launch, and files that arrive whole or not at all."""

import hashlib
from pathlib import Path
from typing import Any

import pytest

from jobs.captures import artifacts as files
from jobs.models import Artifact, Attempt, Run, RunEvent, Upload
from tests.console.fake_runner import DATA, SHA256, Runner, content
from tests.rows import make_project, make_run
from tests.services import Valkey

pytestmark = pytest.mark.django_db


@pytest.fixture
def run(valkey: Valkey) -> Run:
    return make_run(state="running")


@pytest.fixture(autouse=True)
def files_dir(settings: Any, tmp_path: Path) -> Path:
    settings.FILES_DIR = tmp_path / "files"
    return tmp_path / "files"


def test_launch_says_what_to_run_and_which_files_it_needs(run: Run) -> None:
    spec = {**run.spec, "data": {**run.spec["data"], "kind": "upload", "id": f"upload:{SHA256}"}}
    Run.objects.filter(pk=run.pk).update(spec=spec)
    Upload.objects.create(project=run.project, sha256=SHA256, file_name="words.jsonl", size=len(DATA))
    Upload.objects.create(project=make_project(), sha256=SHA256, file_name="not mine.jsonl", size=len(DATA))

    answer = Runner(run).get("launch").json()

    assert (answer["run"], answer["attempt"], answer["spec"]) == (run.pk, 1, spec)
    assert answer["inputs"] == [{"sha256": SHA256, "file_name": "words.jsonl", "size": len(DATA)}]


def test_an_uploaded_file_goes_to_runs_of_its_project_only(run: Run, files_dir: Path) -> None:
    (files_dir / "uploads").mkdir(parents=True)
    (files_dir / "uploads" / SHA256).write_bytes(DATA)
    assert Runner(run).get(f"inputs/{SHA256}").status_code == 404

    Upload.objects.create(project=run.project, sha256=SHA256, file_name="words.jsonl", size=len(DATA))

    answer = Runner(run).get(f"inputs/{SHA256}")
    assert answer["Content-Length"] == str(len(DATA))
    assert content(answer) == DATA


def test_a_run_that_has_ended_gets_no_uploads_any_more(run: Run, files_dir: Path) -> None:
    """Its token is known to its author, who may not be a member any more."""
    (files_dir / "uploads").mkdir(parents=True)
    (files_dir / "uploads" / SHA256).write_bytes(DATA)
    Upload.objects.create(project=run.project, sha256=SHA256, file_name="words.jsonl", size=len(DATA))
    Run.objects.filter(pk=run.pk).update(state="finished")

    assert Runner(run).get(f"inputs/{SHA256}").status_code == 409


def test_a_file_that_is_deleted_while_it_arrives_says_so_of_itself_alone(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    take = files._append

    def deleted_meanwhile(*given: Any) -> None:
        take(*given)
        Artifact.objects.all().delete()

    with monkeypatch.context() as patched:
        patched.setattr(files, "_append", deleted_meanwhile)
        assert Runner(run).put("model-final.zip", DATA).status_code == 410
    assert Runner(run).put("logs.zip", DATA).json()["is_ready"]


def test_a_file_arrives_in_pieces_and_is_ready_when_whole(run: Run) -> None:
    runner = Runner(run)
    assert runner.get("files/model-final.zip").json() == {"received": 0, "is_ready": False}

    first = runner.put("model-final.zip", DATA[:10_000], meta='{"dtype": "float32"}', step=7)
    assert first.json() == {"received": 10_000, "is_ready": False}
    assert runner.get("files/model-final.zip/content").status_code == 404
    last = runner.put("model-final.zip", DATA[10_000:], offset=10_000, step=7)

    assert last.json() == {"received": len(DATA), "is_ready": True}
    assert runner.get("files/model-final.zip").json() == {"received": len(DATA), "is_ready": True}
    assert content(runner.get("files/model-final.zip/content")) == DATA
    row = Artifact.objects.get()
    assert (row.type, row.step, row.path, row.meta) == ("model", 7, "model/final", {"dtype": "float32"})
    assert row.stored_path.read_bytes() == DATA
    assert RunEvent.objects.filter(run=run, verb="artifact").count() == 1


def test_a_piece_that_comes_again_or_too_early_is_told_where_to_go_on(run: Run) -> None:
    runner = Runner(run)
    runner.put("a", DATA[:10_000])

    for offset in (0, 12_000):
        answer = runner.put("a", DATA[offset : offset + 100], offset=offset)
        assert (answer.status_code, answer.json()["received"]) == (409, 10_000)

    runner.put("a", DATA[10_000:], offset=10_000)
    assert runner.put("a", DATA[10_000:], offset=10_000).json() == {"received": len(DATA), "is_ready": True}


def test_bytes_that_a_crash_left_uncounted_are_overwritten(run: Run) -> None:
    runner = Runner(run)
    runner.put("a", DATA[:10_000])
    part = Artifact.objects.get().stored_path.with_suffix(".part")
    part.write_bytes(part.read_bytes() + b"torn")

    runner.put("a", DATA[10_000:], offset=10_000)

    assert content(runner.get("files/a/content")) == DATA


def test_a_wrong_checksum_begins_anew(run: Run) -> None:
    runner = Runner(run)
    answer = runner.put("a", DATA[:-1] + b"!")

    assert (answer.status_code, answer.json()["received"]) == (422, 0)
    assert runner.get("files/a").json() == {"received": 0, "is_ready": False}
    assert runner.put("a", DATA).json()["is_ready"]


def test_a_file_announced_anew_replaces_the_old_one(run: Run) -> None:
    runner = Runner(run)
    runner.put("best", DATA)
    newer = b"newer"

    answer = runner.put("best", newer, size=len(newer), sha256=hashlib.sha256(newer).hexdigest(), step=9)

    assert answer.json() == {"received": 5, "is_ready": True}
    assert content(runner.get("files/best/content")) == newer


def test_an_empty_file_is_ready_at_once(run: Run) -> None:
    runner = Runner(run)

    assert runner.put("empty", b"", size=0, sha256=hashlib.sha256(b"").hexdigest()).json()["is_ready"]
    assert content(runner.get("files/empty/content")) == b""


def test_a_full_disk_is_507_and_keeps_what_was_there(run: Run) -> None:
    runner = Runner(run)
    runner.put("a", DATA[:10_000])
    part = Artifact.objects.get().stored_path.with_suffix(".part")
    saved = part.read_bytes()
    part.unlink()
    part.symlink_to("/dev/full")  # the kernel answers every write with "no space left on device"

    answer = runner.put("a", DATA[10_000:], offset=10_000)

    assert answer.status_code == 507
    assert "full" in answer.json()["problems"][0]
    assert runner.get("files/a").json()["received"] == 10_000
    part.unlink()
    part.write_bytes(saved)
    assert runner.put("a", DATA[10_000:], offset=10_000).json()["is_ready"]


@pytest.mark.parametrize("name", ["../../etc/passwd", "a/../../b", ".hidden", "a//b", "%00", "..%2f..%2fpasswd"])
def test_no_name_leads_out_of_the_folder(run: Run, files_dir: Path, name: str) -> None:
    answer = Runner(run).put(name, DATA)

    assert answer.status_code in (400, 404)
    assert not Artifact.objects.exists()
    assert not files_dir.exists()


@pytest.mark.parametrize(
    ("about", "said"),
    [
        ({"size": "x"}, "size:"),
        ({"size": -1}, "size:"),
        ({"size": 2**60}, "size:"),
        ({"offset": -1}, "offset:"),
        ({"offset": len(DATA)}, "go past the announced size"),
        ({"sha256": "AB"}, "sha256:"),
        ({"type": ""}, "type:"),
        ({"meta": "[]"}, "meta:"),
        ({"meta": "{"}, "meta:"),
        ({"step": "one"}, "step:"),
    ],
)
def test_a_piece_with_a_bad_field_is_refused_by_name(run: Run, about: dict[str, Any], said: str) -> None:
    answer = Runner(run).put("a", DATA, **about)

    assert answer.status_code == 400
    assert said in answer.json()["problems"][0]
    assert not Artifact.objects.exists()


def test_a_piece_above_8_mib_is_413(run: Run) -> None:
    answer = Runner(run).put("a", b"x" * (files.MAX_PIECE_BYTES + 1), size=2**30)

    assert answer.status_code == 413


def test_a_new_attempt_reads_what_an_earlier_one_left(run: Run) -> None:
    Runner(run).put("checkpoint", DATA)
    Attempt.objects.create(run=run, number=2, state="running", submission_id="second")
    Run.objects.filter(pk=run.pk).update(latest_attempt=2)

    assert content(Runner(run, attempt=2).get("files/checkpoint/content")) == DATA
