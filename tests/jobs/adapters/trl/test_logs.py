"""TRL's logs as events. What is read was written by TRL 1.16.0 and Transformers 5.19.0: runs on CPU of the bundled
model, six optimizer steps each. Records with texts, which hold the name of the machine, are left out of its files.
"""

import shutil
from pathlib import Path
from typing import Any

import pytest

from jobs.adapters.adapter import adapter
from jobs.adapters.trl.logs import planned_steps
from jobs.catalog.metric import metrics
from jobs.catalog.spec.parse import parse_spec
from profiling.events import to_line

WRITTEN = Path(__file__).with_name("written")
BARS = (
    "Loading weights:   0%|          | 0/38 [00:00<?, ?it/s]\rLoading weights: 100%|##########| 38/38 [00:00<00:00]\n"
    "Tokenizing train dataset: 100%|##########| 3690/3690 [00:05<00:00, 716.51 examples/s]\n"
    "\r  0%|          | 0/6 [00:00<?, ?it/s]\r 17%|#6        | 1/6 [00:03<00:15,  3.16s/it]"
)
TWO_UPDATES = {"train.updates_per_rollout": 2}


def spec_of(algorithm: str, **knobs: Any) -> Any:
    return parse_spec({"algorithm": algorithm, "trainer": {"name": "trl"}, "knobs": knobs})


def read(run_dir: Path, algorithm: str, **knobs: Any) -> dict[int, dict[str, float]]:
    """Return the values by step of a file that lies in the run directory."""
    (run_dir / "tb").mkdir()
    shutil.copy(WRITTEN / f"{algorithm}.tfevents", run_dir / "tb" / "events.out.tfevents.1.host.1.0")
    reader = adapter("trl").logs(spec=spec_of(algorithm, **knobs), run_dir=run_dir)
    assert reader is not None
    steps: dict[int, dict[str, float]] = {}
    for event in [*reader.poll(now_ns=1), *reader.poll(now_ns=2)]:
        to_line(event)  # type: ignore[arg-type]
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


@pytest.mark.parametrize(("algorithm", "knobs", "steps"), [("sft", {}, 6), ("grpo", TWO_UPDATES, 3)])
def test_the_bar_without_a_name_tells_how_many_steps_there_will_be(
    algorithm: str, knobs: dict[str, Any], steps: int
) -> None:
    spec = spec_of(algorithm, **knobs)

    assert planned_steps(BARS, spec) == steps
    assert planned_steps(BARS.partition("\r  0%")[0], spec) is None
