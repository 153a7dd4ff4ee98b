"""TRL's logs as events. What is read was written by TRL 1.16.0 and Transformers 5.19.0: runs on CPU of the bundled
model, six optimizer steps each. Records with texts, which hold the name of the machine, are left out of its files; RLOO
has the times beside it that a launch has TRL write.
"""

import shutil
from pathlib import Path
from typing import Any

import pytest

from jobs.adapters.adapter import adapter
from jobs.adapters.trl.logs import planned_steps
from jobs.adapters.trl.timers import FILE
from jobs.catalog.metric import metrics
from jobs.catalog.spec.parse import parse_spec
from profiling.events import Event, to_line

WRITTEN = Path(__file__).with_name("written")
BARS = (
    "Loading weights:   0%|          | 0/38 [00:00<?, ?it/s]\rLoading weights: 100%|##########| 38/38 [00:00<00:00]\n"
    "Tokenizing train dataset: 100%|##########| 3690/3690 [00:05<00:00, 716.51 examples/s]\n"
    "\r  0%|          | 0/6 [00:00<?, ?it/s]\r 17%|#6        | 1/6 [00:03<00:15,  3.16s/it]"
)
TWO_UPDATES = {"train.updates_per_rollout": 2}


def spec_of(algorithm: str, **knobs: Any) -> Any:
    return parse_spec({"algorithm": algorithm, "trainer": {"name": "trl"}, "knobs": knobs})


def events_of(run_dir: Path, algorithm: str, **knobs: Any) -> list[Event]:
    """Return the events of the files that lie in the run directory."""
    (run_dir / "tb").mkdir()
    shutil.copy(WRITTEN / f"{algorithm}.tfevents", run_dir / "tb" / "events.out.tfevents.1.host.1.0")
    reader = adapter("trl").logs(spec=spec_of(algorithm, **knobs), run_dir=run_dir)
    assert reader is not None
    events = [*reader.poll(now_ns=1), *reader.poll(now_ns=2)]
    for event in events:
        to_line(event)
    return events


def read(run_dir: Path, algorithm: str, **knobs: Any) -> dict[int, dict[str, float]]:
    """Return the values by step of a file that lies in the run directory."""
    steps: dict[int, dict[str, float]] = {}
    for event in events_of(run_dir, algorithm, **knobs):
        if event["kind"] == "metric":
            steps.setdefault(int(event["step"]), {}).update(event["values"])
    return steps


def test_fine_tuning_has_curves_with_the_names_of_the_dictionary(tmp_path: Path) -> None:
    steps = read(tmp_path, "sft")

    assert list(steps) == [1, 2, 3, 4, 5, 6]
    assert steps[1]["loss/sft"] == pytest.approx(0.0694, abs=1e-3)
    assert steps[2]["time/step_seconds"] > 0
    assert steps[3]["eval/loss"] == pytest.approx(0.0629, abs=1e-3)
    assert {"policy/grad_norm", "policy/learning_rate", "train/epoch"} <= set(steps[6])
    assert not [name for name in steps[6] if "train_" in name or "per_second" in name or "flos" in name]


def test_a_rollout_of_two_updates_is_one_step_with_the_values_of_the_last(tmp_path: Path) -> None:
    steps = read(tmp_path, "grpo", **TWO_UPDATES)

    assert list(steps) == [1, 2, 3]
    assert steps[1]["reward/mean"] == pytest.approx(0.4125)
    assert steps[3]["loss/policy"] == pytest.approx(0.0554, abs=1e-4)
    known = {name for name in steps[2] if name in metrics()}
    assert {
        "reward/std",
        "kl/reference",
        "policy/entropy",
        "policy/clip_fraction",
        "response/length_mean",
        "response/length_max",
        "response/truncated_fraction",
        "groups/zero_variance_fraction",
    } <= known


def test_labels_and_reward_models_have_the_names_of_the_dictionary(tmp_path: Path) -> None:
    for algorithm in ("kto", "rm"):
        (tmp_path / algorithm).mkdir()
    labels, pairs = read(tmp_path / "kto", "kto"), read(tmp_path / "rm", "rm")

    assert labels[1]["loss/labels"] == pytest.approx(0.5, abs=1e-4), "the policy is its reference yet"
    assert labels[6]["loss/labels"] < labels[1]["loss/labels"]
    assert {"labels/margin", "labels/desirable_reward", "labels/undesirable_reward", "labels/reference_point"} <= set(
        labels[6]
    )
    assert {"eval/labels_loss", "eval/labels_margin", "time/eval_seconds"} <= set(labels[3])
    assert {"loss/pairs", "pairs/accuracy", "pairs/margin", "eval/pairs_loss", "eval/pairs_accuracy"} <= set(pairs[3])
    assert not {name for name in (*labels[6], *pairs[6]) if name in ("kl/reference", "policy/entropy", "reward/mean")}


def test_rloo_has_the_phases_of_its_steps(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    shutil.copy(WRITTEN / "rloo-timers.jsonl", tmp_path / FILE)
    knobs = {**TWO_UPDATES, "algorithm.kl_coefficient": 0.05}
    events = events_of(tmp_path, "rloo", **knobs)

    spans = [event for event in events if event["kind"] == "span"]
    values = {int(event["step"]): event["values"] for event in events if event["kind"] == "metric"}
    phases = ["rollout", "reward", "old_logprobs", "reference", "update"]
    assert [(span["step"], span["phase"]) for span in spans] == [(step, name) for step in (1, 2, 3) for name in phases]
    for step in (2, 3):
        inside = sum(values[step][f"time/{name}_seconds"] for name in phases)
        assert 0.8 * values[step]["time/step_seconds"] < inside < values[step]["time/step_seconds"]
    assert values[3]["loss/policy"] != 0


@pytest.mark.parametrize(("algorithm", "knobs", "steps"), [("sft", {}, 6), ("grpo", TWO_UPDATES, 3)])
def test_the_bar_without_a_name_tells_how_many_steps_there_will_be(
    algorithm: str, knobs: dict[str, Any], steps: int
) -> None:
    spec = spec_of(algorithm, **knobs)

    assert planned_steps(BARS, spec) == steps
    assert planned_steps(BARS.partition("\r  0%")[0], spec) is None
