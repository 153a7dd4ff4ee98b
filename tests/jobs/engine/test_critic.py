"""A run with a critic: both learn, both are saved, and both go on in another layout."""

import json
from pathlib import Path
from typing import Any

import pytest

from jobs.engine.checkpoints.checkpoint import open_checkpoint
from tests.jobs.engine.conftest import EndedRun

pytestmark = pytest.mark.engine
KNOBS: dict[str, Any] = {
    "train.num_steps": 4,
    "rollout.prompts_per_step": 32,
    "rollout.samples_per_prompt": 1,
    "eval.num_prompts": 8,
    "eval.every_steps": 0,
    "checkpoint.every_steps": 2,
    "algorithm.critic_warmup_steps": 1,
}
PPO: dict[str, Any] = {
    "algorithm": "ppo",
    "hardware": {"layout": "colocated", "policy_ranks": 2},
    "profile": {"nsys_ready": "off"},
    "knobs": KNOBS,
}
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


@pytest.fixture(scope="module")
def whole(start_engine: Any, tmp_path_factory: pytest.TempPathFactory) -> EndedRun:
    """Four steps, the critic held by the policy's ranks, which draw, too; the policy rests in the first."""
    ended: EndedRun = start_engine(tmp_path_factory.mktemp("ppo") / "a1", PPO).wait()
    assert ended.code == 0, ended.output
    return ended


@pytest.mark.slow("the first test waits for the run that all of them read")
def test_metrics_of_both_are_told_and_the_policy_rests_while_the_critic_warms_up(whole: EndedRun) -> None:
    for name in OF_CRITIC:
        assert sorted(whole.series(name)) == [1, 2, 3, 4], name
    for name in ("loss/policy", "policy/learning_rate", "kl/reference"):
        assert sorted(whole.series(name)) == [2, 3, 4], name
    assert set(whole.series("value/learning_rate").values()) == {1e-3}
    assert whole.series("value/mean")[1] == 0.0  # a new head
    assert whole.series("value/mean")[2] > 0.0
    assert not whole.series("groups/zero_variance_fraction")
    assert whole.series("kl/reference")[2] == pytest.approx(0.0, abs=1e-5)  # it has not moved before


def test_a_checkpoint_holds_both(whole: EndedRun) -> None:
    folder = whole.run_dir / "checkpoints" / "step-2"
    roles = open_checkpoint(folder, name="The checkpoint").index["roles"]

    assert set(roles) == {"policy", "critic"}
    assert roles["policy"]["optimizer_step"] == 1
    assert roles["critic"]["optimizer_step"] == 2
    assert "score.weight" in roles["critic"]["parameters"]
    assert all(len(list((folder / role).glob("*.safetensors"))) == 2 for role in roles)


@pytest.mark.slow("a run that goes on with critic and reference on devices of their own")
def test_both_go_on_in_another_layout_with_other_ranks(whole: EndedRun, start_engine: Any) -> None:
    """From two ranks that held all to one of each, which no longer draw: from the same weights, moments and prompts."""
    after = whole.run_dir.with_name("a2")
    after.mkdir()
    folder = whole.run_dir / "checkpoints" / "step-2"
    (after / "resume.json").write_text(json.dumps({"attempt": 1, "step": 2, "folder": str(folder)}))
    spec = PPO | {"hardware": {"layout": "split", "policy_ranks": 1}}

    ended: EndedRun = start_engine(after, spec).wait()

    assert ended.code == 0, ended.output
    assert sorted(ended.series("loss/value")) == [3, 4]
    spans = {(e["role"], e["rank"], e["phase"]) for e in ended.of("span")}
    assert {("critic", 0, phase) for phase in ("load", "old_logprobs", "update")} <= spans
    assert ended.series("value/mean")[3] == pytest.approx(whole.series("value/mean")[3], abs=0.1)
    roles = _index(after / "checkpoints" / "step-4")["roles"]
    assert [roles[role]["optimizer_step"] for role in ("policy", "critic")] == [3, 4]


def _index(folder: Path) -> Any:
    return json.loads((folder / "checkpoint.json").read_text())
