"""Pairs of which nothing is learned, and slow runs that do learn; a loss of answers that does not fall is a notice."""

import math
import random

import pytest

from jobs.catalog.rules.symptom import in_metrics, matches, symptoms
from jobs.catalog.spec.parse import parse_spec
from jobs.catalog.spec.runspec import RunSpec

SEEDS = 100
Numbers = dict[str, list[float | None]]


def run_of(algorithm: str) -> RunSpec:
    return parse_spec({"algorithm": algorithm, "knobs": {}})


def pairs(seed: int, *, steps: int, in_order: float, falls_by: float, batch: int = 32) -> Numbers:
    """Return a run of pairs that moves to a share in order and a lower loss, steadily, over its whole length."""
    rng = random.Random(seed)
    made: Numbers = {"loss/pairs": [], "pairs/accuracy": []}
    for step in range(steps):
        share = step / (steps - 1)
        probability = 0.5 + (in_order - 0.5) * share
        made["loss/pairs"].append(math.log(2) - falls_by * share + rng.gauss(0, 0.02))
        made["pairs/accuracy"].append(sum(rng.random() < probability for _ in range(batch)) / batch)
    return made


def share_named(algorithm: str, name: str, runs: list[Numbers]) -> float:
    return sum(name in in_metrics(spec=run_of(algorithm), metrics=numbers) for numbers in runs) / len(runs)


@pytest.mark.parametrize("steps", [100, 400])
@pytest.mark.parametrize("algorithm", ["dpo", "rm"])
def test_pairs_of_which_nothing_is_learned_are_named(algorithm: str, steps: int) -> None:
    runs = [pairs(seed, steps=steps, in_order=0.5, falls_by=0.0) for seed in range(SEEDS)]

    assert share_named(algorithm, "learning.pairs_not_learned", runs) >= 0.9


@pytest.mark.parametrize(("steps", "in_order", "falls_by"), [(100, 0.6, 0.03), (400, 0.58, 0.02), (400, 0.7, 0.1)])
def test_a_slow_run_of_pairs_raises_no_alarm(steps: int, in_order: float, falls_by: float) -> None:
    runs = [pairs(seed, steps=steps, in_order=in_order, falls_by=falls_by) for seed in range(SEEDS)]

    assert share_named("dpo", "learning.pairs_not_learned", runs) <= 0.02


def test_a_reward_model_that_was_good_before_raises_no_alarm() -> None:
    runs: list[Numbers] = []
    for seed in range(SEEDS):
        rng = random.Random(seed)
        order = [sum(rng.random() < 0.68 for _ in range(16)) / 16 for _ in range(200)]
        runs.append({"loss/pairs": [rng.gauss(0.58, 0.05) for _ in range(200)], "pairs/accuracy": list(order)})

    assert share_named("rm", "learning.pairs_not_learned", runs) <= 0.02


def test_held_out_pairs_tell_it_where_those_of_training_are_not_reported() -> None:
    numbers: Numbers = {
        **pairs(1, steps=200, in_order=0.5, falls_by=0.0),
        "eval/pairs_accuracy": [0.0, 0.5, 0.52, 0.49],
    }
    del numbers["pairs/accuracy"]

    said = in_metrics(spec=run_of("dpo"), metrics=numbers)["learning.pairs_not_learned"]

    assert said[0].text.startswith("Pair loss: no fall within 200 values, now 0.")


def test_a_loss_of_answers_that_does_not_fall_is_a_notice_unless_the_held_out_one_falls() -> None:
    rng = random.Random(1)
    flat: list[float | None] = [rng.gauss(1.1, 0.1) for _ in range(200)]
    steep: list[float | None] = [1.1 + math.exp(-step / 3) + rng.gauss(0, 0.1) for step in range(200)]
    spec = run_of("sft")

    (notice,) = matches(spec=spec, log_lines=[], metrics={"loss/sft": flat})

    assert (notice.symptom.id, notice.symptom.tone) == ("learning.loss_stays_flat", "hint")
    assert matches(spec=spec, log_lines=[], metrics={"loss/sft": flat, "eval/loss": [1.2, 1.1, 1.0]}) == []
    assert matches(spec=spec, log_lines=[], metrics={"loss/sft": flat[:50]}) == []  # too early to say
    assert matches(spec=spec, log_lines=[], metrics={"loss/sft": steep}) == []  # it fell at once, as most do
    assert symptoms()["learning.loss_rises"].tone == "alarm"
