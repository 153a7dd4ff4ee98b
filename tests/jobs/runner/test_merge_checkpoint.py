"""A model of one checkpoint, as a job of its own; a program of the test's stands in for the trainer's."""

import io
import json
import zipfile
from typing import Any

import pytest

from jobs.catalog.spec.parse import parse_spec
from jobs.catalog.spec.runspec import to_text
from tests.jobs.runner.conftest import House
from tests.jobs.runner.fake_console import TOKEN, FakeConsole
from tests.waiting import wait_until

KEY = "key-of-the-one-merge"
ENVIRONMENT: dict[str, Any] = {
    "PITWALL_MERGE": 7,
    "PITWALL_MERGE_KEY": KEY,
    "PITWALL_STEP": 3,
    "PITWALL_ARTIFACT": "model-step-3.zip",
}


@pytest.fixture
def program(house: House, console: FakeConsole) -> Any:
    """Return how to say what the trainer's program does; a checkpoint of step 3 is there."""
    console.is_fenced = True  # the run has ended
    console.merge = f"7:{KEY}"
    (house.run_dir / "checkpoints" / "step-3").mkdir(parents=True)
    (house.run_dir / "spec.json").write_text(to_text(parse_spec({"name": "test"})))
    (house.run_dir / "launch.json").write_text(json.dumps({"env": {"OWN": "1"}, "variables": {}}))
    folder = house.folder / "jobs" / "engine" / "checkpoints"
    folder.mkdir()
    (folder / "__init__.py").touch()
    return lambda body: (folder / "merge.py").write_text(f"import os, sys, time\nfrom pathlib import Path\n{body}\n")


def files_of(house: House) -> list[str]:
    return sorted(str(path.relative_to(house.run_dir)) for path in house.run_dir.rglob("*"))


def test_the_model_is_handed_over_after_the_end_of_the_run_and_nothing_is_left(
    house: House, console: FakeConsole, program: Any
) -> None:
    program("Path(sys.argv[2], 'config.json').write_text(repr((sys.argv[1], dict(os.environ))))")
    before = files_of(house)

    said = house.finish(house.start("jobs.runner.merge_checkpoint", **ENVIRONMENT))

    assert console.merged == [{"problem": ""}], said
    assert console.ready == {"model-step-3.zip"}
    about = console.about["model-step-3.zip"]
    assert (about["type"], about["step"], about["path"]) == ("model", "3", "checkpoints/step-3")
    with zipfile.ZipFile(io.BytesIO(console.files["model-step-3.zip"])) as archive:
        assert archive.namelist() == ["config.json", "pitwall_spec.json"]
        text = archive.read("config.json").decode()
    assert "checkpoints/step-3" in text
    assert "'OWN': '1'" in text
    assert "'CUDA_VISIBLE_DEVICES': ''" in text
    assert TOKEN not in text
    assert KEY not in text
    assert files_of(house) == before


@pytest.mark.parametrize(
    ("step", "body", "problem"),
    [
        (3, "raise SystemExit('The checkpoint is not whole.')", "exit code 1: The checkpoint is not whole."),
        (4, "", "Checkpoint 4 is not on this node"),
    ],
)
def test_what_does_not_work_is_said_in_a_sentence(
    house: House, console: FakeConsole, program: Any, step: int, body: str, problem: str
) -> None:
    program(body)

    house.finish(house.start("jobs.runner.merge_checkpoint", **ENVIRONMENT | {"PITWALL_STEP": step}))

    ((said,),) = [list(told.values()) for told in console.merged]
    assert problem in said
    assert not console.ready
    assert not list(house.run_dir.glob(".merge-*"))


def test_a_job_that_is_to_end_leaves_nothing(house: House, console: FakeConsole, program: Any) -> None:
    program("Path(sys.argv[1], 'begun').touch()\ntime.sleep(600)")
    job = house.start("jobs.runner.merge_checkpoint", **ENVIRONMENT)
    wait_until((house.run_dir / "checkpoints" / "step-3" / "begun").exists, 60)
    console.merge = ""  # it was canceled

    job.terminate()
    house.finish(job, code=1)

    assert not console.files
    assert not list(house.run_dir.glob(".merge-*"))
    assert not house.marked()
