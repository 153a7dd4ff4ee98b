"""From given answers to a reward model to PPO: each run starts from what the one before has left."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tests.jobs.engine.conftest import EndedRun

pytestmark = pytest.mark.engine
SHORT = {"eval.num_prompts": 4, "eval.every_steps": 0, "checkpoint.every_steps": 0, "train.micro_batch_size": 8}
Chain = dict[str, EndedRun]


def final(ended: EndedRun) -> Path:
    return ended.run_dir / "model" / "final"


@pytest.fixture(scope="module")
def chain(start_engine: Any, tmp_path_factory: pytest.TempPathFactory) -> Chain:
    """Three runs of one rank, the last one judged by the second, whose model its critic starts from."""
    folder, done = tmp_path_factory.mktemp("chain"), Chain()

    def run(algorithm: str, knobs: dict[str, Any], **sections: Any) -> None:
        spec = {"algorithm": algorithm, "hardware": {"policy_ranks": 1}, "knobs": SHORT | knobs, **sections}
        done[algorithm] = start_engine(folder / algorithm, spec).wait()
        assert done[algorithm].code == 0, done[algorithm].output

    run("sft", {"train.num_steps": 1, "train.batch_size": 8})
    start = {"kind": "path", "id": str(final(done["sft"]))}
    run("rm", {"train.num_steps": 3, "train.batch_size": 8}, model=start)
    place = str(final(done["rm"]))
    run(
        "ppo",
        {"train.num_steps": 2, "rollout.prompts_per_step": 8, "models.critic_path": place},
        model=start,
        reward={"kind": "math", "more": [{"kind": "model", "location": place, "weight": 0.5}]},
    )
    return done


@pytest.mark.slow("three runs, which the first test waits for")
def test_ppo_is_rewarded_by_the_model_that_was_trained_before_it(chain: Chain) -> None:
    ppo = chain["ppo"]

    judged, math, mean = (ppo.series(f"reward/{name}") for name in ("model", "math", "mean"))
    assert sorted(judged) == [1, 2]
    assert judged[1] != 0.0
    for step in (1, 2):
        assert mean[step] == pytest.approx(math[step] + 0.5 * judged[step], abs=1e-5)
    sample = next(s for s in ppo.of("sample") if s["step"] == 1)
    assert set(sample["rewards"]) == {"math", "model"}
    assert {(e["role"], e["phase"]) for e in ppo.of("span")} >= {("policy", "reward")}


def test_its_critic_starts_from_the_reward_models_head(chain: Chain) -> None:
    """A critic from a language model starts at 0."""
    assert chain["ppo"].series("value/mean")[1] != 0.0


def test_the_reward_model_starts_from_the_answers_that_were_learned(chain: Chain) -> None:
    weights = {name: load_file(final(ended) / "model.safetensors") for name, ended in chain.items()}
    name = "model.layers.0.mlp.up_proj.weight"

    moved = float((weights["rm"][name] - weights["sft"][name]).abs().max())
    assert 0 < moved < 0.02  # three small steps
    assert weights["rm"]["score.weight"].shape == (1, 128)
    assert torch.count_nonzero(weights["rm"]["score.weight"])
    assert "score.weight" not in weights["ppo"]
