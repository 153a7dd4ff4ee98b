"""The comparison with TRL: how far curves are apart, what both sides are told, and the picture."""

import xml.etree.ElementTree as ElementTree

import pytest

from jobs.catalog.metric import metric
from jobs.catalog.spec.parse import parse_spec
from tests.bench.peers.agreement import agreement
from tests.bench.peers.parts import PARTS, spec_of
from tests.curves import Line, Panel, picture


def test_the_distance_of_two_sides_is_held_against_the_spread_of_seeds() -> None:
    """Two seeds, two steps. By hand: means 1.5, 3.5 and 1.6, 3.6; deviations 0.7071 everywhere."""
    found = agreement([[1.0, 3.0], [2.0, 4.0]], [[1.1, 3.1], [2.1, 4.1]])

    assert found.apart == pytest.approx(0.1)
    assert found.spread == pytest.approx(0.70711, abs=1e-5)
    assert found.seed_gap == pytest.approx(0.1)
    assert found.overlap == 1
    assert found.holds


@pytest.mark.parametrize(
    "theirs",
    [
        [[2.5, 4.5], [3.5, 5.5]],  # further apart than the seeds
        [[1.0, 4.2], [2.0, 4.4]],  # nearer, and yet in one step of two no seed of one side is among the other's
    ],
)
def test_sides_that_differ_by_more_than_seeds_do_not_agree(theirs: list[list[float]]) -> None:
    assert not agreement([[1.0, 3.0], [2.0, 4.0]], theirs).holds


def test_curves_of_other_lengths_are_no_comparison() -> None:
    with pytest.raises(ValueError, match="shorter"):
        agreement([[1.0, 2.0], [1.0, 2.0]], [[1.0], [1.0]])


@pytest.mark.parametrize("name", PARTS)
def test_both_sides_have_the_same_rate_batch_and_optimizer(name: str) -> None:
    part, spec = PARTS[name], parse_spec(spec_of(PARTS[name], 2))
    config = part.config

    assert config["learning_rate"] == spec.float_knob("optimizer.learning_rate")
    assert (config["adam_beta1"], config["adam_beta2"]) == tuple(spec.float_knob(f"optimizer.beta{k}") for k in (1, 2))
    for theirs, ours in (
        ("adam_epsilon", "optimizer.epsilon"),
        ("weight_decay", "optimizer.weight_decay"),
        ("max_grad_norm", "optimizer.max_grad_norm"),
    ):
        assert config[theirs] == spec.float_knob(ours)
    assert (config["lr_scheduler_type"], spec.knob("optimizer.schedule")) == ("constant", "constant")
    assert spec.int_knob("optimizer.warmup_steps") == 0
    sequences = config["per_device_train_batch_size"] * config["gradient_accumulation_steps"]
    assert sequences == part.num_rows * config.get("num_generations", 1)
    assert all(metric(ours).label != ours for ours in part.metrics)


def test_the_preference_and_the_distance_to_the_reference_weigh_the_same() -> None:
    dpo, grpo = (parse_spec(spec_of(PARTS[name], 2)) for name in ("dpo", "grpo"))

    assert PARTS["dpo"].config["beta"] == dpo.float_knob("pairs.beta")
    assert PARTS["grpo"].config["beta"] == grpo.float_knob("algorithm.kl_coefficient")
    assert PARTS["grpo"].config["epsilon"] == grpo.float_knob("algorithm.clip_ratio_high")
    assert PARTS["grpo"].config["max_completion_length"] == grpo.int_knob("rollout.max_new_tokens")


def test_a_picture_has_a_band_and_a_mean_for_each_line() -> None:
    """Of steps 0 and 10 the means are 1 and 3: at the bottom left and, below the bound of 4, three quarters up."""
    line = Line(name="a < b", seeds={10: [2.0, 4.0], 0: [1.0, 1.0]})

    drawn = picture([Panel(title="Loss & co", lines=[line], bounds=(0.0,))])

    (band,) = ElementTree.fromstring(drawn).iter("{http://www.w3.org/2000/svg}polygon")
    (mean,) = ElementTree.fromstring(drawn).iter("{http://www.w3.org/2000/svg}polyline")
    assert mean.get("points") == "46.0,117.5 238.0,56.5"
    assert band.get("points") == "46.0,117.5 238.0,26.0 238.0,87.0 46.0,117.5"
    assert "Loss &amp; co" in drawn
    assert "a &lt; b" in drawn
