"""Signs of divergence: cases computed by hand."""

import math
from typing import Any

import pytest

from jobs.catalog.spec.parse import parse_spec
from jobs.engine.failures.divergence import Collapse, DivergenceGuards, Sustained


def seen(detector: Any, values: list[float]) -> list[int]:
    """Return the steps at which the sign was told."""
    return [step for step, value in enumerate(values, start=1) if detector.see(step, value)]


def test_a_value_above_its_limit_is_told_once_after_so_many_steps_in_a_row() -> None:
    detector = Sustained(limit=1.0, steps=3, is_upper=True)

    assert seen(detector, [0.5, 2, 2, 1.0, 2, 2, 2, 2, 2]) == [7]  # 1.0 is not above, so it begins anew at step 5
    assert detector.since == 5


def test_it_is_told_again_after_it_was_over() -> None:
    assert seen(Sustained(limit=1.0, steps=2, is_upper=True), [2, 2, 2, 0, 2, 2]) == [2, 6]


def test_a_value_below_its_limit_and_one_that_is_no_number() -> None:
    assert seen(Sustained(limit=0.1, steps=2, is_upper=False), [0.2, 0.05, 0.01, 0.01]) == [3]
    assert seen(Sustained(limit=0.1, steps=2, is_upper=True), [math.nan, math.nan]) == [2]


def test_a_reward_that_falls_from_its_best_window_by_more_than_the_share() -> None:
    detector = Collapse(window=2, drop=0.5)

    # Means of two: 0.8 (best, at step 2), 0.6, 0.4 (not more than half of 0.8), 0.3 (a fall of 0.5 > 0.4).
    assert seen(detector, [0.8, 0.8, 0.4, 0.4, 0.2]) == [5]
    assert (detector.best, detector.now, detector.since) == (pytest.approx(0.8), pytest.approx(0.3), 3)


def test_a_reward_below_zero_and_one_that_only_shakes() -> None:
    assert seen(Collapse(window=2, drop=0.5), [-1, -1, -2, -2]) == [4]  # -1 -> -1.5 is half, -2 is more
    # Best window 0.9 and -0.7: mean 0.1, deviation 0.8, noise 3 x 0.8 / sqrt(2) = 1.70: a fall to -1 is less.
    assert seen(Collapse(window=2, drop=0.5), [0.9, -0.7, -1.0, -1.0]) == []


def test_what_is_no_number_counts_for_nothing_in_a_mean() -> None:
    assert seen(Collapse(window=2, drop=0.5), [0.8, math.nan, 0.8, 0.1, 0.1]) == [5]


def guards(**knobs: Any) -> DivergenceGuards:
    names = {f"guard.{name}": value for name, value in knobs.items()}
    return DivergenceGuards(parse_spec({"knobs": names}))


def test_a_guard_that_is_off_or_without_its_metric_sees_nothing() -> None:
    off = guards(kl="off", kl_limit=1, steps=1)
    assert off.see(1, {"kl/reference": 5.0}) == []
    assert guards(kl="note", kl_limit=1, steps=1).see(1, {"reward/mean": 0.5}) == []
    assert DivergenceGuards(parse_spec({"algorithm": "sft"})).see(1, {"loss/sft": math.nan}) == []


def test_a_sign_names_metric_limit_and_its_first_step() -> None:
    guard = guards(kl="stop", kl_limit=1, steps=2)
    assert guard.see(7, {"kl/reference": 4.0}) == []
    assert guard.suspected_since() == 7

    (sign,) = guard.see(8, {"kl/reference": 6.0})

    assert (sign.guard, sign.since, guard.policy_of(sign)) == ("kl", 7, "stop")
    assert sign.text == "The KL to the reference is above 1 nats per token since step 7, 6 at step 8."
    guard.see(9, {"kl/reference": 0.1})
    assert guard.suspected_since() == 0


def test_a_sign_whose_policy_is_a_note_keeps_no_checkpoint() -> None:
    guard = guards(entropy="note", entropy_limit=0.1, steps=2)

    guard.see(1, {"policy/entropy": 0.01})

    assert guard.suspected_since() == 0
    assert [sign.guard for sign in guard.see(2, {"policy/entropy": 0.01})] == ["entropy"]
