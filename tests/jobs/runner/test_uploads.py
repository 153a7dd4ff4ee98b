"""Handing files over: resumable at any byte, checked, and given up with a sentence."""

import hashlib
import io
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.runner.console_client.console import AttemptFenced, Console
from jobs.runner.console_client.runner_job import RunnerJob
from jobs.runner.console_client.zip_image import zip_image
from jobs.runner.uploads import UploadFailed, ZipUpload, hand_over, planned
from profiling import events
from tests.jobs.runner.fake_console import TOKEN, FakeConsole


@pytest.fixture
def client(console: FakeConsole, tmp_path: Path) -> Iterator[Console]:
    job = RunnerJob(url=console.url, token=TOKEN, run=console.run, attempt=1, run_root=tmp_path)
    made = Console(job)
    yield made
    made.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "model" / "final"
    (made / "sub").mkdir(parents=True)
    (made / "config.json").write_text("{}")
    (made / "sub" / "weights").write_bytes(os.urandom(300_000))
    (made / "empty").touch()
    return made


def upload(folder: Path) -> ZipUpload:
    return ZipUpload(name="model-final.zip", folder=folder, type="model", path="model/final")


def never(seconds: float) -> bool:
    return False


def test_the_image_of_a_zip_is_a_zip_and_always_the_same(folder: Path) -> None:
    image = zip_image(folder)
    data = image.read(0, image.size)

    assert hashlib.sha256(data).hexdigest() == image.sha256
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert archive.testzip() is None
        assert archive.namelist() == ["config.json", "empty", "sub/weights"]
        assert archive.read("sub/weights") == (folder / "sub" / "weights").read_bytes()
    os.utime(folder / "config.json", (0, 0))
    assert zip_image(folder).sha256 == image.sha256
    assert b"".join(image.read(i, 777) for i in range(0, image.size, 777)) == data


def test_checkpoints_below_a_model_are_no_part_of_its_zip(folder: Path) -> None:
    before = zip_image(folder).sha256
    (folder / "checkpoint-20").mkdir()
    (folder / "checkpoint-20" / "optimizer.pt").write_bytes(b"moments")

    assert zip_image(folder).sha256 == before


def test_an_upload_goes_on_where_the_console_has_got_to(folder: Path, console: FakeConsole, client: Console) -> None:
    image = zip_image(folder)
    console.files["model-final.zip"] = bytearray(image.read(0, 123_457))

    hand_over(upload(folder), console=client, wait=never, chunk_bytes=100_000)

    assert console.puts[0][1] == 123_457
    assert hashlib.sha256(console.files["model-final.zip"]).hexdigest() == image.sha256
    assert "model-final.zip" in console.ready


def test_a_console_that_forgot_part_of_the_file_says_where_to_go_on(
    folder: Path, console: FakeConsole, client: Console
) -> None:
    def forget_once(_seconds: float) -> bool:
        with console.condition:
            console.fail_with = 0
        return False

    console.files["model-final.zip"] = bytearray(zip_image(folder).read(0, 200_000))
    state = client.file_state("model-final.zip")
    del console.files["model-final.zip"][100:]

    hand_over(upload(folder), console=client, wait=forget_once, chunk_bytes=50_000)

    assert state.received == 200_000
    assert console.puts[0][1] == 100
    assert "model-final.zip" in console.ready


def test_bytes_changed_on_the_way_are_sent_again(folder: Path, console: FakeConsole, client: Console) -> None:
    console.damage_next_put = True

    hand_over(upload(folder), console=client, wait=never, chunk_bytes=100_000)

    assert [offset for _, offset, _ in console.puts].count(0) == 2
    assert hashlib.sha256(console.files["model-final.zip"]).hexdigest() == zip_image(folder).sha256


def test_a_console_that_is_away_is_waited_for(folder: Path, console: FakeConsole, client: Console) -> None:
    console.fail_with = 503
    waits: list[float] = []

    def wait(seconds: float) -> bool:
        waits.extend([seconds] if seconds else [])
        if len(waits) == 7:
            with console.condition:
                console.fail_with = 0
        return False

    hand_over(upload(folder), console=client, wait=wait)

    assert waits == [0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    assert "model-final.zip" in console.ready


def test_a_full_disk_over_there_is_given_up_with_a_sentence(
    folder: Path, console: FakeConsole, client: Console
) -> None:
    console.fail_with = 507

    with pytest.raises(UploadFailed, match=r"model-final.zip could not be handed over; model/final stays in the run"):
        hand_over(upload(folder), console=client, wait=never)


def test_an_upload_without_time_left_is_given_up_between_chunks(
    folder: Path, console: FakeConsole, client: Console
) -> None:
    with pytest.raises(UploadFailed, match="There was no time left"):
        hand_over(upload(folder), console=client, wait=lambda _seconds: len(console.puts) == 2, chunk_bytes=50_000)

    assert len(console.files["model-final.zip"]) == 100_000


@pytest.mark.parametrize("asked", [0, 2])
def test_packing_is_given_up_between_blocks(folder: Path, console: FakeConsole, client: Console, asked: int) -> None:
    left = iter([False] * asked)
    upload = ZipUpload(name="model.zip", folder=folder, type="model", path="m", give_up=lambda: next(left, True))

    with pytest.raises(UploadFailed, match="no time left"):
        hand_over(upload, console=client, wait=lambda _: False)

    assert not console.files


def test_a_fenced_attempt_hands_nothing_over(folder: Path, console: FakeConsole, client: Console) -> None:
    console.is_fenced = True

    with pytest.raises(AttemptFenced):
        hand_over(upload(folder), console=client, wait=never)


def test_a_folder_without_files_is_said_to_be_that(tmp_path: Path, client: Console) -> None:
    with pytest.raises(UploadFailed, match="holds no file"):
        hand_over(upload(tmp_path / "model"), console=client, wait=never)


def test_checkpoints_and_what_lies_outside_the_run_directory_stay_on_the_cluster(tmp_path: Path) -> None:
    announced = {
        "model-final": events.artifact("model-final", artifact="model", path="model/final", attempt=1),
        "adapter": events.artifact("adapter", artifact="adapter", path="model/final-adapter", attempt=1),
        "tensorboard": events.artifact("tensorboard", artifact="tensorboard", path="tb", attempt=1),
        "step-3": events.artifact("step-3", artifact="checkpoint", path="checkpoints/3", attempt=1),
        "secrets": events.artifact("secrets", artifact="model", path="../../../etc", attempt=1),
    }
    (tmp_path / "log").mkdir()
    (tmp_path / "tb").mkdir()

    names = ["adapter.zip", "model-final.zip", "tensorboard.zip", "logs.zip"]
    assert [u.name for u in planned(tmp_path, announced)] == names
