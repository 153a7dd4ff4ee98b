"""The floor of free disk: on a small file system of its own, or where none can be mounted with its size told."""

import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile

from jobs.storage import floor
from tests.console.fake_runner import Runner
from tests.rows import make_project, make_run, make_user, signed_in
from tests.services import Valkey

MIB = 1 << 20


@pytest.fixture
def small_disk(tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A disk of 8 MiB that keeps 4 MiB free, and half a MiB for what runs report."""
    home = tmp_path / "files"
    home.mkdir()
    settings.FILES_DIR, settings.MIN_FREE_BYTES = home, 4 * MIB
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(home)]
    is_mounted = os.geteuid() == 0 and subprocess.run(mount, capture_output=True, check=False).returncode == 0
    if not is_mounted:
        whole = shutil.disk_usage(tmp_path)

        def usage(_path: Path) -> Any:
            taken = sum(file.stat().st_size for file in home.rglob("*") if file.is_file())
            return whole._replace(total=8 * MIB, used=taken, free=8 * MIB - taken)

        monkeypatch.setattr("jobs.storage.floor.shutil.disk_usage", usage)
    yield home
    if is_mounted:
        subprocess.run(["umount", "-l", str(home)], check=True)


def fill(home: Path, *, leave: int) -> None:
    """Let so many bytes be free."""
    size = floor.read_disk().free - leave
    with (home / "filling").open("wb") as file:
        for _ in range(size // MIB):
            file.write(bytes(MIB))
        file.write(bytes(size % MIB))


def hand_over(runner: Runner, name: str, size: int, **about: Any) -> Any:
    data = bytes(size)
    return runner.put(name, data, size=size, sha256=hashlib.sha256(data).hexdigest(), **about)


@pytest.mark.django_db
def test_uploads_stop_at_the_floor_files_of_runs_at_the_next_and_reports_never(
    small_disk: Path, valkey: Valkey
) -> None:
    project = make_project("theirs")
    client = signed_in(make_user("engineer", project=project))
    runner = Runner(make_run(project, state="running"))

    def upload(number: int) -> Any:
        rows = b'{"prompt": "%d"}\n' % number + bytes(MIB - 100)
        return client.post("/api/uploads", {"file": SimpleUploadedFile("rows.jsonl", rows)})

    answers = [upload(number) for number in range(6)]

    refused = [answer for answer in answers if answer.status_code == 507]
    assert len(refused) >= 2
    assert {answer.status_code for answer in answers} == {201, 507}
    assert floor.read_disk().level == "free"
    assert "MiB of it are kept free" in refused[0].json()["problems"][0]["message"]
    assert not list((small_disk / "uploads").glob(".*.part"))
    assert hand_over(runner, "model.zip", MIB).status_code == 200
    fill(small_disk, leave=MIB)
    assert floor.read_disk().level == "low"
    assert hand_over(runner, "larger.zip", MIB).status_code == 507
    assert hand_over(runner, "trace.json", 10, type="trace").status_code == 507
    assert hand_over(runner, "small.zip", 10).status_code == 200
    assert runner.events(1).status_code == 200


@pytest.mark.parametrize(
    ("free", "keep", "percent", "level"),
    [(512, 512, 0, "free"), (511, 512, 0, "low"), (64, 512, 0, "low"), (63, 512, 0, "full"), (900, 512, 10, "low")],
)
def test_the_larger_floor_counts_and_files_of_runs_have_an_eighth_of_it(
    free: int, keep: int, percent: float, level: str, settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.FILES_DIR, settings.MIN_FREE_BYTES, settings.MIN_FREE_PERCENT = tmp_path, keep * MIB, percent
    usage = shutil.disk_usage(tmp_path)._replace(total=10_000 * MIB, free=free * MIB)
    monkeypatch.setattr("jobs.storage.floor.shutil.disk_usage", lambda _path: usage)

    assert floor.read_disk().level == level
    assert bool(floor.low_disk()) == (level != "free")


@pytest.mark.django_db
@pytest.mark.parametrize(("who", "told"), [("viewer", False), ("admin", True), ("superuser", True)])
def test_whoever_can_help_reads_on_every_page_that_the_disk_is_low(
    who: str, told: bool, settings: Any, tmp_path: Path
) -> None:
    settings.FILES_DIR, settings.MIN_FREE_BYTES = tmp_path, shutil.disk_usage(tmp_path).total
    user = make_user("a", project=make_project(), role="viewer" if who == "superuser" else who)
    user.is_superuser = who == "superuser"
    user.save()

    page = signed_in(user).get("/").content.decode()
    cluster = signed_in(user).get("/cluster").content.decode()

    assert ("data-low-disk" in page) == told
    assert "The console&#x27;s disk has only" in cluster
    assert "data-low-disk" not in cluster
