"""An attempt that goes on from a checkpoint: the trainer is told where it lies, or is not started."""

import json
import socket
from typing import Any

import pytest

from tests.jobs.runner.conftest import House
from tests.jobs.runner.fake_console import FakeConsole


def test_the_trainer_is_told_which_folder_to_go_on_from(house: House, console: FakeConsole) -> None:
    console.resume = {"attempt": 3, "step": 40}
    folder = house.run_root / console.run / "a3" / "checkpoints" / "step-40"
    folder.mkdir(parents=True)
    house.trainer("print((run_dir / 'resume.json').read_text(), flush=True)")

    house.finish(house.start())

    assert console.terminal_event["state"] == "finished"
    assert json.loads("".join(console.lines())) == {"attempt": 3, "step": 40, "folder": str(folder)}


def test_an_attempt_from_the_start_finds_nothing_to_go_on_from(house: House, console: FakeConsole) -> None:
    house.trainer("assert not (run_dir / 'resume.json').exists()")

    house.finish(house.start())

    assert console.terminal_event["state"] == "finished"


@pytest.mark.parametrize(
    ("resume", "side", "said"),
    [
        (
            {"attempt": 1, "step": 40},
            "cluster",
            f"checkpoint 40 of attempt 1 is not on this node, {socket.gethostname()}",
        ),
        ({"attempt": 1, "step": None}, "pitwall", "cannot read what to resume from"),
    ],
)
def test_without_the_checkpoint_no_trainer_is_started(
    house: House, console: FakeConsole, resume: dict[str, Any], side: str, said: str
) -> None:
    console.resume = resume
    house.trainer("metric(1)")

    house.finish(house.start())

    assert console.terminal_event["state"] == "failed"
    assert console.terminal_event["cause"]["side"] == side
    assert console.terminal_event["cause"].get("field") == ("resume" if side == "cluster" else None)
    assert said in console.terminal_event["cause"]["text"]
    assert console.of_kind("metric") == []
