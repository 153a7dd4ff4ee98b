"""Announcements of files by a trainer that writes whatever it likes: nonsense costs nothing else."""

import json
from pathlib import Path

import pytest

from jobs.runner.reporting.trainer_progress import TrainerProgress
from jobs.runner.uploads import planned


@pytest.mark.parametrize(
    "odd", [{"path": 5}, {"path": None}, {"path": "a\0b"}, {"meta": 7}, {"name": 3}, {"step": "x"}, {"name": ["a"]}]
)
def test_an_announcement_that_makes_no_sense_is_passed_over(tmp_path: Path, odd: dict[str, object]) -> None:
    about = {"kind": "artifact", "artifact": "trace", "path": "traces/c", "step": 1, "meta": {"capture": "c"}}
    log = tmp_path / "events.jsonl"
    log.write_text(
        "".join(json.dumps(event) + "\n" for event in ({**about, "name": "b", **odd}, {**about, "name": "a"}))
    )
    progress = TrainerProgress(path=log)

    progress.read()

    assert [upload.name for upload in planned(tmp_path, progress.artifacts)] == ["a"]
