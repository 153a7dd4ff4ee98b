"""Runs that learn from preferences, from their spec to what they leave."""

import json
from pathlib import Path
from typing import Any

import pytest

from jobs.catalog.spec.runspec import DataSource
from jobs.engine.data.dataset import load_table
from tests.jobs.engine.conftest import EndedRun

pytestmark = pytest.mark.engine
KNOBS = {
    "train.num_steps": 8,
    "train.batch_size": 16,
    "train.micro_batch_size": 8,
    "optimizer.learning_rate": 3e-4,
    "eval.num_prompts": 24,
    "eval.every_steps": 4,
    "checkpoint.every_steps": 0,
    "logging.samples_per_step": 8,
}


@pytest.fixture(scope="module")
def dpo(start_engine: Any, tmp_path_factory: pytest.TempPathFactory) -> EndedRun:
    """Eight steps of DPO on two ranks that hold the reference as well."""
    spec = {"algorithm": "dpo", "knobs": KNOBS | {"pairs.nll_coefficient": 0.1, "train.packing": True}}
    ended: EndedRun = start_engine(tmp_path_factory.mktemp("dpo"), spec).wait()
    assert ended.code == 0, ended.output
    return ended


@pytest.mark.slow("the first test waits for the run that the others read")
def test_it_sorts_held_out_pairs_after_eight_steps(dpo: EndedRun) -> None:
    accuracy, loss = dpo.series("eval/pairs_accuracy"), dpo.series("eval/pairs_loss")

    assert sorted(accuracy) == [0, 4, 8]
    assert loss[0] == pytest.approx(0.6931, abs=1e-4)  # the policy is its reference
    assert accuracy[0] == 0
    assert accuracy[8] > 0.9
    assert loss[8] < loss[4] < loss[0]


def test_the_first_step_starts_at_the_reference_and_the_margin_grows(dpo: EndedRun) -> None:
    margin = dpo.series("pairs/margin")

    assert margin[1] == pytest.approx(0, abs=1e-5)
    assert margin[8] > 0.03
    for step in range(1, 9):
        apart = dpo.series("pairs/chosen_reward")[step] - dpo.series("pairs/rejected_reward")[step]
        assert margin[step] == pytest.approx(apart, abs=1e-5)
    assert sorted(dpo.series("time/reference_seconds")) == list(range(1, 9))


def test_held_out_pairs_are_shown_side_by_side_with_their_rewards(dpo: EndedRun) -> None:
    samples = [s for s in dpo.of("sample") if s["step"] == 8]

    assert len(samples) == 8
    for chosen, rejected in zip(samples[0::2], samples[1::2], strict=True):
        assert chosen["group"] == rejected["group"]
        assert chosen["prompt"] == rejected["prompt"] != ""
        assert chosen["completion"] != rejected["completion"]
        assert chosen["rewards"] == {"chosen": chosen["reward"]}
        assert rejected["rewards"] == {"rejected": rejected["reward"]}
    assert sum(s["reward"] for s in samples[0::2]) > sum(s["reward"] for s in samples[1::2])


def test_the_best_model_is_the_one_that_sorts_most_pairs(dpo: EndedRun) -> None:
    best = next(e for e in reversed(dpo.of("artifact")) if e["name"] == "model-best")

    assert best["meta"]["eval/pairs_accuracy"] == max(dpo.series("eval/pairs_accuracy").values())
    assert (dpo.run_dir / "model" / "final" / "model.safetensors").is_file()


@pytest.mark.proof
def test_labels_out_of_balance_are_learned_with_a_note_and_shown_by_label(start_engine: Any, tmp_path: Path) -> None:
    """KTO on three steps of one file with columns of its own: three undesirable responses to a desirable one."""
    rows = load_table(DataSource(), inputs_dir=tmp_path).train[:80]
    labeled = [
        {"question": row["prompt"], "completion": row["rejected" if i % 4 else "chosen"], "liked": i % 4 == 0}
        for i, row in enumerate(rows)
    ]
    file = tmp_path / "labels.jsonl"
    file.write_text("".join(f"{json.dumps(row)}\n" for row in labeled))
    knobs = KNOBS | {"train.num_steps": 3, "eval.every_steps": 0, "pairs.desirable_weight": 2.0}
    spec = {
        "algorithm": "kto",
        "data": {"kind": "path", "id": str(file), "eval_share": 0.2},
        "hardware": {"layout": "split", "policy_ranks": 1},
        "knobs": knobs,
    }

    ended = start_engine(tmp_path / "run", spec).wait()

    assert ended.code == 0, ended.output
    assert "label from liked" in ended.output
    assert "a weight of desirable responses from" in ended.output
    loss, right = ended.series("eval/labels_loss"), ended.series("eval/labels_accuracy")
    assert sorted(loss) == sorted(right) == [0, 3]
    assert loss[3] < loss[0]
    assert right[0] == 0  # the policy is its reference
    assert right[3] > 0.5
    assert ended.series("labels/reference_point")[1] == pytest.approx(0, abs=1e-5)
    assert set(ended.series("labels/desirable_fraction").values()) < {k / 16 for k in range(1, 12)}
    for name in ("time/reference_seconds", "time/old_logprobs_seconds", "labels/margin", "loss/labels"):
        assert sorted(ended.series(name)) == [1, 2, 3], name
    shown = [s["rewards"] for s in ended.of("sample") if s["step"] == 3]
    assert {name for rewards in shown for name in rewards} == {"desirable", "undesirable"}
