"""A run of another trainer: a real interpreter with a trainer of the test's own in the place of OpenRLHF."""

import os
import signal
import sysconfig
import textwrap
import venv
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from jobs.runner.models_left import announced, models_left
from tests.jobs.runner.conftest import House
from tests.jobs.runner.fake_console import FakeConsole
from tests.waiting import wait_until

SPEC: dict[str, Any] = {"name": "test", "algorithm": "sft", "trainer": {"name": "openrlhf"}}
PREAMBLE = """
import os, sys, time
from pathlib import Path
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter
given = dict(zip(sys.argv[1::2], sys.argv[2::2]))
writer = EventFileWriter(given["--logger.tensorboard_dir"] + "/x")  # flushes every two minutes, if nobody hurries it
def train(step, **values):
    for name, value in (values or {"loss_mean": 1 / step}).items():
        summary = Summary(value=[Summary.Value(tag="train/" + name, simple_value=value)])
        writer.add_event(Event(wall_time=time.time(), step=step, summary=summary))
def wait_for(name):
    while not Path(name).exists():
        time.sleep(0.01)
"""


class OtherTrainer:
    """An environment that has OpenRLHF, as far as its metadata and its module's name say."""

    def __init__(self, folder: Path, house: House) -> None:
        venv.create(folder)
        self.house = house
        self.python = folder / "bin" / "python"
        (packages,) = (folder / "lib").glob("python*/site-packages")
        (packages / "tests.pth").write_text(sysconfig.get_paths()["purelib"])  # for TensorBoard's writer
        info = packages / "openrlhf-0.11.2.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: openrlhf\nVersion: 0.11.2\n")
        self.module = packages / "openrlhf" / "cli" / "train_sft.py"
        self.module.parent.mkdir(parents=True)
        house.without_inputs()

    def is_(self, body: str) -> None:
        """Make `body` the trainer."""
        self.module.write_text(PREAMBLE + textwrap.dedent(body))

    def start(self, module: str = "jobs.runner", **env: Any) -> Any:
        """Start a runner that finds this environment declared."""
        return self.house.start(module, PITWALL_TRAINERS=f"openrlhf-0.11.2={self.python}", **env)


@pytest.fixture
def other(tmp_path: Path, house: House, console: FakeConsole) -> OtherTrainer:
    console.spec = SPEC
    return OtherTrainer(tmp_path / "environment", house)


def steps_of(console: FakeConsole) -> list[int]:
    return [event["step"] for event in console.of_kind("metric")]


def test_its_values_arrive_while_it_trains_and_its_model_at_the_end(
    other: OtherTrainer, house: House, console: FakeConsole
) -> None:
    other.is_(
        """
        train(0, loss_mean=3.0)  # of the model that it starts with
        train(1, loss_mean=2.0)
        wait_for("go")  # in the run directory, which is where it works
        train(2, loss_mean=1.0)
        model = Path(given["--ckpt.output_dir"])
        model.mkdir(parents=True)
        (model / "config.json").write_text("{}")
        (model / "model.safetensors").write_bytes(b"weights")
        writer.close()
        """
    )
    runner = other.start()

    console.wait_for(lambda: steps_of(console) == [0, 1])
    (house.run_dir / "go").touch()
    house.finish(runner)

    assert console.terminal_event["state"] == "finished"
    assert steps_of(console) == [0, 1, 2]
    assert [event["values"]["loss/sft"] for event in console.of_kind("metric")] == [3.0, 2.0, 1.0]
    assert {event["attempt"] for event in console.events} == {console.attempt}
    told = [(event["state"], event["text"]) for event in console.of_kind("state", role="driver")]
    assert told == [("loading", "Starting OpenRLHF 0.11.2"), ("training", "")]
    assert "model-final.zip" in console.ready
    assert console.terminal_event["meta"]["processes_left"] == 0


def test_a_stop_ends_it_at_once_and_other_commands_are_refused(
    other: OtherTrainer, house: House, console: FakeConsole
) -> None:
    other.is_("train(1)\ntrain(2)\nwait_for('never')\n")
    runner = other.start()
    console.wait_for(lambda: steps_of(console) == [1, 2])

    with console.condition:
        console.commands = [
            {"number": 1, "verb": "checkpoint", "payload": {}},
            {"number": 2, "verb": "stop", "payload": {}},
        ]
    house.finish(runner)

    assert console.terminal_event["state"] == "stopped"
    assert console.terminal_event["cause"]["side"] == "user"
    assert "OpenRLHF 0.11.2 was ended" in console.terminal_event["cause"]["text"]
    answers = {answer["number"]: answer["answer"] for answer in console.answered}
    assert answers == {1: {"error": "OpenRLHF 0.11.2 takes no commands while it trains"}, 2: {"accepted": True}}


@pytest.mark.parametrize(
    ("body", "side", "sentence"),
    [
        (
            "train(1)\nwriter.close()\nraise ValueError('no window')",
            "trainer",
            "exit code 1 in step 2: ValueError: no window",
        ),
        (
            "import argparse\nargparse.ArgumentParser(prog='train_sft.py').error('unrecognized arguments: --x')",
            "pitwall",
            "the trainer does not take its command line: unrecognized arguments: --x",
        ),
        (
            "raise ImportError('FlashAttention2 has been toggled on, but it cannot be used')",
            "user",
            "Choose another attention, such as eager or sdpa",
        ),
    ],
)
def test_its_death_is_explained(
    other: OtherTrainer, house: House, console: FakeConsole, body: str, side: str, sentence: str
) -> None:
    other.is_(body)

    house.finish(other.start())

    cause = console.terminal_event["cause"]
    assert (console.terminal_event["state"], cause["side"]) == ("failed", side)
    assert sentence in cause["text"]


def test_a_missing_trainer_is_said_before_anything_starts(house: House, console: FakeConsole) -> None:
    console.spec = SPEC

    house.finish(house.start(PITWALL_TRAINERS=""))

    cause = console.terminal_event["cause"]
    assert (console.terminal_event["state"], cause["side"]) == ("failed", "cluster")
    assert "PITWALL_TRAINERS declares nothing" in cause["text"]
    assert "make trainer-env TRAINER=openrlhf VERSION=0.11.2" in cause["text"]
    assert not (house.run_dir / "launch.json").exists()


def test_what_a_killed_runner_had_not_read_yet_is_read_once(
    other: OtherTrainer, house: House, console: FakeConsole
) -> None:
    other.is_(
        """
        train(1)
        train(2)
        wait_for("go")
        train(3)
        writer.flush()
        Path("written").touch()
        wait_for("never")
        """
    )
    runner = other.start()
    console.wait_for(lambda: steps_of(console) == [1, 2])

    os.kill(runner.pid, signal.SIGSTOP)
    (house.run_dir / "go").touch()
    wait_until((house.run_dir / "written").exists, 60)
    runner.kill()
    runner.wait()
    house.finish(other.start("jobs.runner.cleanup"))

    assert steps_of(console) == [1, 2, 3]
    assert console.terminal_event["state"] == "failed"
    assert "the runner was killed" in console.terminal_event["cause"]["text"]


def test_adapters_are_the_model_that_is_left_until_there_is_a_whole_one(tmp_path: Path) -> None:
    """Checkpoints below a model do not count."""
    patterns = ["model/final", "model/merged_*"]
    model, merged = tmp_path / "model" / "final", tmp_path / "model" / "merged_adapters"
    (model / "checkpoint-2").mkdir(parents=True)
    for name in ("adapter_config.json", "adapter_model.safetensors", "checkpoint-2/optimizer.pt"):
        (model / name).write_bytes(b"12345")

    (alone,) = announced(models_left(tmp_path, patterns), tmp_path, attempt=1, scores=False)
    merged.mkdir()
    for name in ("config.json", "model.safetensors"):
        (merged / name).write_bytes(b"1234567890")
    both = list(announced(models_left(tmp_path, patterns), tmp_path, attempt=1, scores=False))

    assert (alone["name"], alone["artifact"], alone["path"], alone["size"]) == (
        "model-final",
        "model",
        "model/final",
        10,
    )
    assert [(event["name"], event["artifact"], event["path"], event["size"]) for event in both] == [
        ("model-final", "model", "model/merged_adapters", 20),
        ("adapter-final", "adapter", "model/final", 10),
    ]


@pytest.mark.parametrize("file", ["adapter_model.safetensors", "adapter_model.bin"])
def test_adapters_of_a_reward_model_are_its_model_with_the_trained_head_alone(tmp_path: Path, file: str) -> None:
    """OpenRLHF leaves them without it; it writes them by torch where ZeRO-3 has divided the model."""
    folder = tmp_path / "model" / "final"
    folder.mkdir(parents=True)
    (folder / "adapter_config.json").write_text("{}")
    write = save_file if file.endswith(".safetensors") else torch.save
    adapters = {"base_model.model.layers.0.q_proj.lora_A.weight": torch.zeros(2, 2)}

    write(adapters, folder / file)
    (bare,) = announced(models_left(tmp_path, ["model/final"]), tmp_path, attempt=1, scores=True)
    write({**adapters, "base_model.model.score.weight": torch.zeros(1, 2)}, folder / file)
    (whole,) = announced(models_left(tmp_path, ["model/final"]), tmp_path, attempt=1, scores=True)

    assert (bare["name"], bare["artifact"]) == ("adapter-final", "adapter")
    assert (whole["name"], whole["artifact"]) == ("model-final", "model")


def test_a_model_under_the_names_that_it_has_inside_peft_is_none(tmp_path: Path) -> None:
    """As verl saves `hf_model` with adapters: Transformers would find none of its parameters."""
    for step, name in ((2, "lm_head.weight"), (4, "base_model.model.lm_head.weight")):
        folder = tmp_path / f"global_step_{step}" / "huggingface"
        folder.mkdir(parents=True)
        (folder / "config.json").write_text("{}")
        save_file({name: torch.zeros(2, 2)}, folder / "model.safetensors")

    left = models_left(tmp_path, ["global_step_*/huggingface"])

    assert (left.whole, left.adapters) == (tmp_path / "global_step_2" / "huggingface", None)
