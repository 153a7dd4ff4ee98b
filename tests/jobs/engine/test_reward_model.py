"""A run that trains a reward model: what it tells, what it leaves, how it goes on, and PPO that it rewards."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from jobs.engine.checkpoints.merge import merge
from tests.jobs.engine.conftest import EndedRun

pytestmark = pytest.mark.engine
Steps = dict[str, dict[str, float]]
OF_PAIRS = ("loss/pairs", "pairs/accuracy", "pairs/margin", "pairs/chosen_reward", "pairs/rejected_reward")
QUESTION = "Ana has 3 pens and gets 4 more. How many pens now?"
ANSWERS = ("3+4=7, 0+0=0. #### 7", "3+4=7, 0+0=0. The answer is 8.")


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory, warm_environment: dict[str, str]) -> Path:
    """What four steps in one process have left (`a1`), and two that go on from the second in ZeRO-3, padded (`a2`)."""
    folder = tmp_path_factory.mktemp("rm")
    command = [sys.executable, "-m", "tests.jobs.engine.lone_run", str(folder), "rm"]
    environment = os.environ | warm_environment
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=1200, check=False)
    assert ended.returncode == 0, ended.stderr
    return folder


@pytest.fixture(scope="module")
def ppo(run_dir: Path, start_engine: Any, tmp_path_factory: pytest.TempPathFactory) -> EndedRun:
    """Two steps that the trained model rewards besides the answer; the critic starts from it."""
    place = str(run_dir / "a1" / "model" / "final")
    knobs: dict[str, Any] = {"eval.num_prompts": 4, "eval.every_steps": 0, "checkpoint.every_steps": 0}
    knobs |= {"train.micro_batch_size": 8, "train.num_steps": 2, "rollout.prompts_per_step": 8}
    spec = {
        "algorithm": "ppo",
        "hardware": {"policy_ranks": 1},
        "knobs": knobs | {"models.critic_path": place},
        "reward": {"kind": "math", "more": [{"kind": "model", "location": place, "weight": 0.5}]},
    }
    ended: EndedRun = start_engine(tmp_path_factory.mktemp("ppo"), spec).wait()
    assert ended.code == 0, ended.output
    return ended


@pytest.mark.slow("the first test waits for the runs that all of them read")
def test_it_learns_and_goes_on_to_the_last_bits_in_another_stage_and_padded(run_dir: Path) -> None:
    found: dict[str, Steps] = json.loads((run_dir / "found.json").read_text())
    whole, resumed = found["whole"], found["resumed"]

    assert whole["1"]["loss/pairs"] == pytest.approx(0.6931, abs=1e-4)  # a head of zeros tells nothing apart
    assert whole["1"]["policy/grad_norm"] > 0
    assert whole["4"]["pairs/margin"] > 0
    assert "policy/entropy" not in whole["1"]
    assert whole["0"]["eval/pairs_margin"] == 0 < whole["4"]["eval/pairs_margin"]
    assert sorted(resumed) == ["3", "4"]
    for step in ("3", "4"):
        for name in (*OF_PAIRS, "policy/grad_norm"):
            assert resumed[step][name] == pytest.approx(whole[step][name], abs=1e-5), (step, name)
    assert resumed["4"]["eval/pairs_margin"] == pytest.approx(whole["4"]["eval/pairs_margin"], abs=1e-5)


def test_what_it_leaves_scores_alike_in_plain_transformers_padded_or_not(run_dir: Path) -> None:
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    folder = run_dir / "a1" / "model" / "final"
    model, loaded = AutoModelForSequenceClassification.from_pretrained(folder, output_loading_info=True)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    texts = [
        tokenizer.apply_chat_template(
            [{"role": "user", "content": QUESTION}, {"role": "assistant", "content": answer}], tokenize=False
        )
        for answer in ANSWERS
    ]

    def scores(some: list[str]) -> list[float]:
        inputs = tokenizer(some, padding=True, padding_side="right", add_special_tokens=False, return_tensors="pt")
        with torch.no_grad():
            return [float(score) for score in model(**inputs).logits[:, 0]]

    assert not loaded["missing_keys"]
    assert not loaded["unexpected_keys"]
    assert model.config.num_labels == 1
    assert model.score.weight.any()
    together = scores(texts)
    assert [scores([text])[0] for text in texts] == pytest.approx(together, abs=1e-6)
    assert together[0] > together[1]
    assert not (folder / "generation_config.json").exists()


@pytest.mark.parametrize("attempt", ["a1", "a2"])
def test_the_model_of_its_last_checkpoint_is_what_it_leaves_bit_for_bit(
    run_dir: Path, tmp_path: Path, attempt: str
) -> None:
    """Of stage 0, and of ZeRO-3, where each rank has saved its part."""
    merge(run_dir / attempt / "checkpoints" / "step-4", tmp_path / "made")

    left, made = (load_file(at / "model.safetensors") for at in (run_dir / attempt / "model/final", tmp_path / "made"))
    assert left.keys() == made.keys()
    assert [name for name in left if not torch.equal(left[name], made[name])] == []
    for name in ("config.json", "tokenizer.json"):
        assert (tmp_path / "made" / name).read_bytes() == (run_dir / attempt / "model/final" / name).read_bytes()
    assert not (tmp_path / "made" / "generation_config.json").exists()


@pytest.mark.slow("a run that it rewards")
def test_it_rewards_the_responses_of_ppo_with_a_weight_of_its_own(ppo: EndedRun) -> None:
    judged, math, mean = (ppo.series(f"reward/{name}") for name in ("model", "math", "mean"))
    assert sorted(judged) == [1, 2]
    assert judged[1] != 0.0
    for step in (1, 2):
        assert mean[step] == pytest.approx(math[step] + 0.5 * judged[step], abs=1e-5)
    sample = next(s for s in ppo.of("sample") if s["step"] == 1)
    assert set(sample["rewards"]) == {"math", "model"}
    assert {(e["role"], e["phase"]) for e in ppo.of("span")} >= {("policy", "reward")}


def test_the_critic_of_ppo_starts_from_its_head_which_the_policy_does_not_have(ppo: EndedRun, run_dir: Path) -> None:
    """A critic from a language model starts at 0."""
    assert ppo.series("value/mean")[1] != 0.0
    judge, policy = (load_file(folder / "model/final/model.safetensors") for folder in (run_dir / "a1", ppo.run_dir))
    assert judge["score.weight"].shape == (1, 128)
    assert "score.weight" not in policy
