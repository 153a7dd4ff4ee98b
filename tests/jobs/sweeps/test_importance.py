"""Which knob the runs of a sweep follow: planted effects are found, chance is not, and few runs are said to be few."""

import numpy as np
import pytest

from jobs.sweeps.importance import knob_importance

RATE, SEED, KIND = "optimizer.learning_rate", "train.seed", "algorithm.kl_kind"


def grid(rates: tuple[float, ...], seeds: int) -> list[dict[str, float]]:
    return [{RATE: rate, SEED: seed} for rate in rates for seed in range(seeds)]


def test_a_planted_optimum_in_the_middle_is_found_and_seeds_are_not() -> None:
    values = grid((1e-5, 1e-4, 1e-3), 4)
    outcomes = [(0.9 if own[RATE] == 1e-4 else 0.4) + 0.01 * (own[SEED] % 3) for own in values]

    rate, seed = knob_importance(knobs=[SEED, RATE], values=values, outcomes=outcomes)

    assert (rate.knob, rate.is_shown, rate.num_values) == (RATE, True, 3)
    assert rate.share is not None
    assert rate.chance is not None
    assert rate.share > 0.6 > rate.chance > 0
    assert rate.trend == pytest.approx(0.0, abs=0.2)  # neither way: the share is no correlation
    assert (seed.knob, seed.is_shown) == (SEED, False)


def test_a_share_by_hand() -> None:
    """Ranks 0 to 7, four in each group: 32 of 42 lie between the groups, and one in 6 of the rest would by chance."""
    values = [{RATE: rate, SEED: 0} for rate in (1, 1, 1, 1, 2, 2, 2, 2)]

    (rate, seed) = knob_importance(knobs=[RATE, SEED], values=values, outcomes=[1, 2, 3, 4, 5, 6, 7, 8])

    assert rate.share == pytest.approx(1 - (1 - 32 / 42) * 7 / 6)
    assert rate.p == pytest.approx(2 / 70, abs=0.012)
    assert rate.trend == pytest.approx(0.873, abs=0.001)
    assert (seed.num_values, seed.share, seed.needed) == (1, None, 0)


def test_too_few_runs_are_said_to_be_too_few() -> None:
    four = grid((1e-5, 1e-4, 1e-3, 1e-2), 1)

    (rate,) = knob_importance(knobs=[RATE], values=four, outcomes=[0.1, 0.2, None, float("nan")])
    (kind,) = knob_importance(knobs=[KIND], values=[{KIND: "k1"}, {KIND: "k2"}], outcomes=[1.0, 2.0])
    (nothing,) = knob_importance(knobs=[RATE], values=[], outcomes=[])

    assert (rate.num_runs, rate.share, rate.p, rate.needed) == (2, None, None, 7)
    assert (kind.needed, kind.trend) == (7, None)
    assert (nothing.num_runs, nothing.share) == (0, None)


def test_random_draws_fall_into_stretches_and_equal_outcomes_explain_nothing() -> None:
    rng = np.random.default_rng(1)
    values = [{RATE: float(rate)} for rate in rng.uniform(size=30)]

    (rate,) = knob_importance(knobs=[RATE], values=values, outcomes=[-((own[RATE] - 0.5) ** 2) for own in values])
    (flat,) = knob_importance(knobs=[RATE], values=values, outcomes=[1.0] * 30)

    assert rate.is_shown
    assert rate.share is not None
    assert rate.share > 0.5
    assert (flat.share, flat.is_shown, flat.trend) == (0.0, False, None)


def test_knobs_that_do_nothing_are_shown_in_one_sweep_of_twenty() -> None:
    rng = np.random.default_rng(2)
    values = [{RATE: rate, SEED: seed, KIND: kind} for rate in (1, 2, 3) for seed in (0, 1) for kind in ("a", "b")]

    wrong = sum(
        any(one.is_shown for one in knob_importance(knobs=[RATE, SEED, KIND], values=values, outcomes=drawn))
        for drawn in rng.normal(size=(200, len(values))).tolist()
    )

    assert wrong / 200 <= 0.08
