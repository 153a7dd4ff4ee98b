"""A backup that is taken while others write is one moment; a restore checks, refuses, and gives the same back."""

import itertools
import json
import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection

from jobs.backup.backup import read_manifest, sha256_of, write_backup
from jobs.backup.problem import BackupRefused
from jobs.backup.restore import check_backup, restore_backup
from jobs.ingest.store import AttemptCache, store
from jobs.models import Artifact, AuditEvent, Command, Frame, Project, Run
from jobs.telemetry.series import MAX_POINTS, read_series
from tests.batches import delivery, metric
from tests.rows import NOW, make_artifact, make_project, make_run

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(connection.vendor != "sqlite", reason="moves the file; PostgreSQL: make proof-backup"),
]


@pytest.fixture(autouse=True)
def own_files(settings: Any, tmp_path: Path) -> Path:
    settings.DATA_DIR, settings.FILES_DIR = tmp_path / "data", tmp_path / "data" / "files"
    settings.FILES_DIR.mkdir(parents=True)
    (settings.DATA_DIR / "secret_key").write_text(settings.SECRET_KEY)
    settings.REDIS_URL = f"unix://{tmp_path}/nobody.sock"
    return tmp_path


@pytest.fixture
def elsewhere(settings: Any, tmp_path: Path) -> Iterator[Callable[[], Path]]:
    """Make this process another console, with nothing in it, until the end of the test."""
    here = connection.settings_dict["NAME"]

    def move() -> Path:
        connection.close()
        home = tmp_path / "elsewhere"
        home.mkdir()
        settings.DATA_DIR, settings.FILES_DIR = home, home / "files"
        settings.SECRET_KEY = "a fresh key of another data directory, made on first use"
        (home / "secret_key").write_text(settings.SECRET_KEY)
        connection.settings_dict["NAME"] = str(home / "pitwall.sqlite3")
        return home

    yield move
    connection.close()
    connection.settings_dict["NAME"] = here


def test_what_is_taken_under_load_is_one_moment_and_comes_back_equal(
    own_files: Path, elsewhere: Callable[[], Path], settings: Any
) -> None:
    run, key = make_run(state="running"), settings.SECRET_KEY
    artifact = make_artifact(run)
    artifact.stored_path.parent.mkdir(parents=True)
    artifact.stored_path.write_bytes(b"bin")
    run.attempts.get().commands.create(verb="stop")
    begun, enough = threading.Event(), threading.Event()

    def ingest() -> None:
        for batch in itertools.count(1):
            steps = [metric(step, loss=step / 7) for step in range(batch * 20 - 19, batch * 20 + 1)]
            store([delivery(run.pk, batch, steps)], memory=AttemptCache(), now=NOW)
            if batch > 5:
                begun.set()
            if enough.is_set():
                break
        connection.close()

    writer = threading.Thread(target=ingest)
    writer.start()
    assert begun.wait(60)
    done = write_backup(own_files / "backup", now=NOW)
    seen = Frame.objects.filter(run=run).count()
    while Frame.objects.filter(run=run).count() < seen + 3:  # it went on meanwhile
        pass
    enough.set()
    writer.join()

    (live,) = read_manifest(done.path)["live"]
    through = live["durable_batch"]
    assert through >= 5
    window: dict[str, Any] = {"run_id": run.pk, "names": ["loss"], "num_points": MAX_POINTS}
    source = read_series(**window).series[0]
    frames = list(Frame.objects.filter(run=run, seq__lte=through).order_by("seq").values_list("seq", "payload"))
    home = elsewhere()
    told = restore_backup(done.path, now=NOW)

    assert Run.objects.get().pk == run.pk
    back = read_series(**window).series[0]
    assert list(back.x) == list(source.x[: through * 20])
    assert list(back.y) == list(source.y[: through * 20])
    assert list(Frame.objects.order_by("seq").values_list("seq", "payload")) == frames
    assert Artifact.objects.get().stored_path.read_bytes() == b"bin"
    assert (told.secret, told.missing, told.is_queue_emptied) == ("restored", [], False)
    assert (home / "secret_key").read_text() == key
    assert (home / "secret_key").stat().st_mode & 0o777 == 0o600
    assert (done.path / "secret_key").stat().st_mode & 0o777 == 0o600
    assert done.path.stat().st_mode & 0o777 == 0o700
    assert run.attempts.get().commands.create(verb="checkpoint").pk > 1_000_000  # no number that its runner has seen
    assert Command.objects.count() == 2


def test_what_is_there_is_not_overwritten_unless_told(own_files: Path) -> None:
    make_project("first")
    done = write_backup(own_files / "backup", now=NOW)
    Project.objects.update(name="changed since")

    with pytest.raises(BackupRefused, match="Say --replace"):
        restore_backup(done.path, now=NOW)
    assert Project.objects.get().name == "changed since"
    with pytest.raises(BackupRefused, match="exists already"):
        write_backup(done.path, now=NOW)


def test_the_commands_leave_a_row_each_the_restore_in_what_it_restored(
    own_files: Path, elsewhere: Callable[[], Path]
) -> None:
    call_command("backup", str(own_files / "backup"))
    assert list(AuditEvent.objects.values_list("verb", "object_id")) == [("backup.create", "backup")]
    elsewhere()
    call_command("restore", str(own_files / "backup"))

    (row,) = AuditEvent.objects.all()
    assert (row.verb, row.object_id, set(row.after)) == ("backup.restore", "backup", {"path", "taken_at"})


def test_a_file_that_did_not_change_is_linked_and_a_backup_that_did_is_refused(own_files: Path, settings: Any) -> None:
    (settings.FILES_DIR / "uploads").mkdir()
    (settings.FILES_DIR / "uploads" / "rows").write_text("1+1")
    first = write_backup(own_files / "first", now=NOW)
    second = write_backup(own_files / "second", now=NOW, link_to=first.path)
    assert (first.num_linked, second.num_linked) == (0, 1)
    assert (second.path / "files/uploads/rows").stat().st_nlink == 2
    shutil.rmtree(first.path)
    check_backup(second.path)

    manifest = (second.path / "manifest.json").read_text()
    (second.path / "manifest.json").write_text(manifest.replace("jobs.0001_initial", "jobs.9999_later"))
    with pytest.raises(BackupRefused, match=r"newer release \(jobs.9999_later\)"):
        check_backup(second.path)
    (second.path / "manifest.json").write_text(manifest)
    with sqlite3.connect(second.path / "database.sqlite3") as changed:
        changed.execute("PRAGMA user_version = 7")
    with pytest.raises(BackupRefused, match=r"database.sqlite3 in .* its checksum differs"):
        check_backup(second.path)
    (second.path / "files/uploads/rows").unlink()
    with pytest.raises(BackupRefused):
        check_backup(second.path)
    with pytest.raises(BackupRefused, match="is no backup"):
        check_backup(own_files)


@pytest.mark.parametrize("name", ["files//{outside}", "files/../../outside", "/{outside}", "files/link/outside"])
def test_a_backup_that_was_tampered_with_puts_nothing_elsewhere(own_files: Path, name: str) -> None:
    done = write_backup(own_files / "backup", now=NOW)
    outside = own_files / "outside"
    held = done.path / "files" / str(outside).lstrip("/")
    held.parent.mkdir(parents=True)
    for file in (held, outside):
        file.write_text("keys of the attacker")
    (done.path / "files" / "link").symlink_to(own_files)
    manifest = read_manifest(done.path)
    described = {"size": outside.stat().st_size, "sha256": sha256_of(outside)}
    manifest["files"][name.format(outside=str(outside).lstrip("/"))] = described
    (done.path / "manifest.json").write_text(json.dumps(manifest))

    with pytest.raises(BackupRefused, match="leads out of"):
        check_backup(done.path)


def test_a_backup_whose_database_has_no_checksum_is_refused(own_files: Path) -> None:
    done = write_backup(own_files / "backup", now=NOW)
    manifest = read_manifest(done.path)
    del manifest["files"]["database.sqlite3"]
    (done.path / "manifest.json").write_text(json.dumps(manifest))

    with pytest.raises(BackupRefused, match=r"does not name database.sqlite3"):
        check_backup(done.path)
