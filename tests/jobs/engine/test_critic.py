"""Runs with a critic: both roles learn, both are saved, and both go on."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.jobs.engine.conftest import EndedRun

pytestmark = pytest.mark.engine
OF_CRITIC = (
    "loss/value",
    "value/clip_fraction",
    "value/explained_variance",
    "value/mean",
    "value/return_mean",
    "value/learning_rate",
    "value/grad_norm",
    "value/skipped_steps",
)
OF_POLICY = ("loss/policy", "policy/learning_rate", "policy/clip_fraction", "kl/reference")
Steps = dict[str, dict[str, float]]


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory, warm_environment: dict[str, str]) -> Path:
    """What four steps in one process have left (`a1`), of which the policy rests in the first, and two that go on from
    the second in ranks of another ZeRO stage, without packing (`a2`).
    """
    folder = tmp_path_factory.mktemp("ppo")
    command = [sys.executable, "-m", "tests.jobs.engine.lone_run", str(folder), "ppo"]
    environment = os.environ | warm_environment
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=1200, check=False)
    assert ended.returncode == 0, ended.stderr
    return folder


@pytest.fixture(scope="module")
def found(run_dir: Path) -> dict[str, Steps]:
    """The metrics of each step of both."""
    return json.loads((run_dir / "found.json").read_text())  # type: ignore[no-any-return]


@pytest.mark.slow("the first test waits for the runs that all of them read")
def test_metrics_of_both_are_told_and_the_policy_rests_while_the_critic_warms_up(found: dict[str, Steps]) -> None:
    whole = found["whole"]

    for step in ("1", "2", "3", "4"):
        assert set(OF_CRITIC) <= set(whole[step])
        assert (set(OF_POLICY) <= set(whole[step])) is (step != "1")
        assert whole[step]["value/learning_rate"] == 1e-3
        assert "groups/zero_variance_fraction" not in whole[step]
    assert whole["1"]["value/mean"] == 0.0  # a new head
    assert whole["2"]["value/mean"] > 0.0
    assert whole["1"]["value/explained_variance"] == pytest.approx(0.0, abs=1e-6)


def test_both_go_on_to_the_last_bits_in_another_stage_and_padded(found: dict[str, Steps]) -> None:
    whole, resumed = found["whole"], found["resumed"]

    assert sorted(resumed) == ["2", "3", "4"]  # of the second the gap of the weights that were loaded
    for step in ("3", "4"):
        for name in (*OF_CRITIC, *OF_POLICY, "reward/mean"):
            assert resumed[step][name] == pytest.approx(whole[step][name], abs=1e-5), (step, name)


def test_a_checkpoint_holds_both_and_says_how_far_each_has_learned(run_dir: Path) -> None:
    """Two updates a rollout; the policy has rested in one step of two."""
    folder = run_dir / "a1" / "checkpoints" / "step-2"
    roles = json.loads((folder / "checkpoint.json").read_text())["roles"]

    assert {role: about["optimizer_step"] for role, about in roles.items()} == {"policy": 2, "critic": 4}
    assert "score.weight" in roles["critic"]["parameters"]
    assert sorted(str(p.relative_to(folder)) for p in folder.rglob("*.safetensors")) == [
        "critic/0-0.safetensors",
        "policy/0-0.safetensors",
    ]
    assert not list((run_dir / "a1" / "model" / "final").glob("*critic*"))  # what is handed over is the policy


@pytest.mark.proof
@pytest.mark.slow("a run of its own: a rank of the critic, one of the policy, an engine")
def test_a_critic_with_devices_of_its_own_goes_on_from_one_that_the_policy_held(
    start_engine: Any, run_dir: Path, found: dict[str, Steps]
) -> None:
    before = run_dir / "a1"
    saved = json.loads((before / "checkpoints" / "step-2" / "checkpoint.json").read_text())["spec"]
    after = run_dir / "a3"
    after.mkdir()
    (after / "resume.json").write_text(
        json.dumps({"attempt": 1, "step": 2, "folder": str(before / "checkpoints" / "step-2")})
    )
    knobs = {name: knob["value"] for name, knob in saved["knobs"].items() if not name.startswith("hardware.")}
    spec = {"algorithm": "ppo", "hardware": {"layout": "split", "policy_ranks": 1}, "knobs": knobs}

    ended: EndedRun = start_engine(after, spec).wait()

    assert ended.code == 0, ended.output
    assert sorted(ended.series("loss/value")) == [3, 4]
    lanes = {(e["role"], e["rank"], e["phase"]) for e in ended.of("span")}
    assert {("critic", 0, phase) for phase in ("load", "old_logprobs", "update", "checkpoint")} <= lanes
    assert ended.series("value/mean")[3] == pytest.approx(found["whole"]["3"]["value/mean"], abs=0.1)
    roles = json.loads((after / "checkpoints" / "step-4" / "checkpoint.json").read_text())["roles"]
    assert {role: about["optimizer_step"] for role, about in roles.items()} == {"policy": 6, "critic": 8}
