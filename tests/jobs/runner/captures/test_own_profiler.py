"""Captures by a trainer's own profiler: its files are taken once they stand still, and handed over while it trains."""

import re
import sysconfig
import textwrap
import venv
from pathlib import Path
from typing import Any

import pytest

from tests.jobs.runner.conftest import House
from tests.jobs.runner.fake_console import FakeConsole
from tests.waiting import wait_until

NAME = "language-model_rank0-of-1_pid7_2026.json.gz"
ARRIVED = f"c-1-{NAME}"
SPEC: dict[str, Any] = {
    "name": "test",
    "algorithm": "sft",
    "trainer": {"name": "verl"},
    "profile": {"what": "operators", "first_step": 2, "num_steps": 1},
}
ASKED = {
    "number": 1,
    "verb": "profile",
    "payload": {
        "capture": "c-1",
        "what": "operators",
        "tool": "torch",
        "first_step": 2,
        "num_steps": 1,
        "roles": [],
        "ranks": [],
        "by": "trainer",
    },
}
PREAMBLE = """
import json, os, sys, time
from pathlib import Path
given = dict(word.split("=", 1) for word in sys.argv[1:] if "=" in word)
assert (given["profiler.enable"], given["trainer.profile_interval"]) == ("True", "[2,2]"), given
folder = Path(given["profiler.save_path"])
folder.mkdir()
def train(step):
    with open(os.environ["VERL_FILE_LOGGER_PATH"], "a") as log:
        log.write(json.dumps({"step": step, "data": {"train/loss": 1 / step}}) + "\\n")
def wait_for(name):
    while not Path(name).exists():
        time.sleep(0.01)
"""


class Verl:
    """An environment that has verl, as far as its metadata and its module's name say."""

    def __init__(self, folder: Path, house: House) -> None:
        venv.create(folder)
        self.house, self.python = house, folder / "bin" / "python"
        (packages,) = (folder / "lib").glob("python*/site-packages")
        (packages / "tests.pth").write_text(sysconfig.get_paths()["purelib"])
        info = packages / "verl-0.9.1.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: verl\nVersion: 0.9.1\n")
        self.module = packages / "verl" / "trainer" / "sft_trainer.py"
        self.module.parent.mkdir(parents=True)
        house.without_inputs()

    def start(self, body: str) -> Any:
        """Start a runner whose trainer is `body`."""
        self.module.write_text(PREAMBLE + textwrap.dedent(body))
        return self.house.start(PITWALL_TRAINERS=f"verl-0.9.1={self.python}")


@pytest.fixture
def verl(tmp_path: Path, house: House, console: FakeConsole) -> Verl:
    console.spec = SPEC
    console.commands = [ASKED]
    return Verl(tmp_path / "environment", house)


def states(console: FakeConsole) -> list[str]:
    return [event["state"] for event in console.of_kind("capture")]


def test_a_file_is_handed_over_once_it_does_not_grow_any_more(verl: Verl, house: House, console: FakeConsole) -> None:
    runner = verl.start(
        f"""
        train(1)
        wait_for("go")
        (folder / ".part").write_bytes(b"not yet")
        file = (folder / "{NAME}").open("wb", buffering=0)
        file.write(b"one")
        train(2)
        while not Path("more").exists():
            file.write(b".")
            time.sleep(0.2)
        file.write(b" two")
        wait_for("end")
        """
    )
    console.wait_for(lambda: states(console) == ["armed", "recording"])
    (house.run_dir / "go").touch()
    console.wait_for(lambda: states(console)[-1] == "writing")
    assert ARRIVED not in console.files
    (house.run_dir / "more").touch()
    console.wait_for(lambda: ARRIVED in console.ready)
    assert runner.poll() is None
    (house.run_dir / "end").touch()
    house.finish(runner)

    assert states(console) == ["armed", "recording", "stopping", "writing", "importing"]
    assert re.fullmatch(rb"one\.+ two", console.files[ARRIVED])
    (told,) = [event for event in console.of_kind("artifact") if event["name"] == ARRIVED]
    about = {key: told["meta"][key] for key in ("capture", "role", "rank", "tool", "first_step", "num_steps")}
    assert about == {
        "capture": "c-1",
        "role": "policy",
        "rank": 0,
        "tool": "torch",
        "first_step": 2,
        "num_steps": 1,
    }
    assert told["path"] == f"profile/{NAME}"


def test_what_is_there_when_the_trainer_ends_is_taken(verl: Verl, house: House, console: FakeConsole) -> None:
    house.finish(verl.start(f"train(1)\n(folder / '{NAME}').write_bytes(b'all')\ntrain(2)\n"))

    assert console.terminal_event["state"] == "finished"
    assert states(console)[-1] == "importing"
    assert bytes(console.files[ARRIVED]) == b"all"


def test_what_is_there_is_taken_when_the_runner_is_killed(verl: Verl, house: House, console: FakeConsole) -> None:
    runner = verl.start(f"train(1)\n(folder / '{NAME}').write_bytes(b'all')\nwait_for('never')\n")
    console.wait_for(lambda: states(console) == ["armed", "recording"])
    file = house.run_dir / "profile" / NAME
    wait_until(lambda: file.exists() and file.stat().st_size == len(b"all"), 60)

    runner.kill()
    runner.wait()
    house.finish(house.start("jobs.runner.cleanup"))

    assert states(console)[-1] == "importing"
    assert bytes(console.files[ARRIVED]) == b"all"


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("train(1)", "The run ended after step 1, before verl 0.9.1 wrote a file of step 2."),
        ("train(1)\ntrain(2)", "verl 0.9.1 wrote no file of step 2. Its log says why."),
    ],
)
def test_a_capture_without_a_file_has_failed(
    verl: Verl, house: House, console: FakeConsole, body: str, why: str
) -> None:
    house.finish(verl.start(body))

    assert [event["text"] for event in console.of_kind("capture") if event["state"] == "failed"] == [why]


def test_ours_stays_away_while_the_trainers_own_profiler_has_steps_ahead(
    verl: Verl, house: House, console: FakeConsole
) -> None:
    payload = {"tool": "torch", "first_step": 0, "num_steps": 1, "roles": [], "ranks": []}
    by_time = {"number": 2, "verb": "profile", "payload": {**payload, "capture": "c-2", "seconds": 60}}
    steps = {"number": 3, "verb": "profile", "payload": {**payload, "capture": "c-3", "first_step": 2}}
    console.commands = [ASKED, by_time, steps]

    runner = verl.start("train(1)\nwait_for('go')\ntrain(2)\n")
    console.wait_for(lambda: console.of_kind("capture", capture="c-2", state="failed"))
    (house.run_dir / "go").touch()
    house.finish(runner)

    said = {event["capture"]: event for event in console.of_kind("capture")}
    assert said["c-2"]["state"] == said["c-3"]["state"] == "failed"
    assert "verl 0.9.1 records up to step 2 itself" in said["c-2"]["text"]
    assert not any(event["state"] == "recording" for event in console.of_kind("capture") if event["capture"] != "c-1")
