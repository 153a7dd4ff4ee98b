"""Runs whose steps are few samples, or far apart: what looks like a fault in them may be noise, a gap or a start."""

import math
import random

import pytest

from jobs.catalog.rules.reward_meaning import with_meanings
from jobs.catalog.rules.symptom import in_metrics
from jobs.catalog.spec.parse import parse_spec

SEEDS = 100
Numbers = dict[str, list[float | None]]


def named(algorithm: str, numbers: Numbers, *, planned: int = 0, step: int = 0) -> set[str]:
    spec = parse_spec({"algorithm": algorithm, "trainer": {"name": "trl"}})
    return {
        name.removeprefix("learning.") for name in in_metrics(spec=spec, metrics=numbers, planned=planned, step=step)
    }


def rewards(seed: int, *, steps: int, samples: int, first: float, last: float) -> list[float | None]:
    """Return mean rewards of 0 or 1 of a policy that is right more often with each step, from one share to another."""
    rng = random.Random(seed)
    shares = [first + (last - first) * step / (steps - 1) for step in range(steps)]
    return [sum(rng.random() < share for _ in range(samples)) / samples for share in shares]


def share_flat(*, steps: int, samples: int, first: float, last: float) -> float:
    runs = [rewards(seed, steps=steps, samples=samples, first=first, last=last) for seed in range(SEEDS)]
    return sum("reward_stays_flat" in named("grpo", {"reward/mean": run}, planned=steps) for run in runs) / SEEDS


@pytest.mark.parametrize(("steps", "samples", "last"), [(100, 8, 0.45), (150, 8, 0.45), (40, 64, 0.45), (200, 8, 0.4)])
def test_a_slow_rise_that_few_samples_hide_is_not_called_flat(steps: int, samples: int, last: float) -> None:
    assert share_flat(steps=steps, samples=samples, first=0.3, last=last) <= 0.02


@pytest.mark.parametrize(("steps", "samples"), [(60, 256), (200, 64), (400, 32), (1000, 8)])
def test_a_reward_that_would_have_shown_a_rise_is_called_flat(steps: int, samples: int) -> None:
    assert share_flat(steps=steps, samples=samples, first=0.3, last=0.3) >= 0.9


@pytest.mark.parametrize("deviation", [0.1, 5.0])
def test_samples_differ_no_less_than_the_means_of_steps_do(deviation: float) -> None:
    """Rewards of -4 and -2 in turn: each second difference is 4, its noise 4 / sqrt(6), the most is not known.

    Of 600 values a rise of 4.1 * sqrt(12 / 600) = 0.5798 deviations shows, of what there is to gain, two of them.
    """
    rewards: list[float | None] = [-4.0, -2.0] * 300
    spec = parse_spec({"algorithm": "grpo", "trainer": {"name": "trl"}})

    (unseen,) = with_meanings(spec, {"reward/mean": rewards, "reward/std": [deviation] * 600})["reward/unseen_rise"]

    gain = max(2 * deviation, 2 * 4 / math.sqrt(6))
    line = 2 * 300 * 6 / (600 * 601)  # what -4, -2, -4, -2 rises by chance
    assert unseen == pytest.approx((0.2899 * 4 / math.sqrt(6) + line) / gain, rel=1e-2)


def test_one_prompt_a_step_is_called_flat_after_1500_steps_and_a_slow_rise_is_not() -> None:
    """Nobody knows the most, and samples of a prompt nearly agree: what there is to gain is told by the noise alone."""

    def is_flat(seed: int, steps: int, gain: float) -> bool:
        rng = random.Random(seed)
        reward: list[float | None] = [rng.gauss(-9.0 + gain * step / steps, 0.6) for step in range(steps)]
        return "reward_stays_flat" in named("grpo", {"reward/mean": reward, "reward/std": [0.1] * steps}, planned=steps)

    assert sum(is_flat(seed, 1500, 0.0) for seed in range(40)) >= 36
    assert sum(is_flat(seed, 1500, 0.24) for seed in range(40)) <= 1
    assert sum(is_flat(seed, 300, 0.0) for seed in range(40)) <= 1


def test_longer_responses_for_a_reward_of_which_nothing_is_known_are_no_fault_yet() -> None:
    length: list[float | None] = [100.0 + 2.5 * step for step in range(60)]
    exploded: list[float | None] = [100.0 + 10 * step for step in range(60)]
    quiet: list[float | None] = [0.3, 0.31, 0.29] * 20

    assert "length_runs_away" in named("grpo", {"reward/mean": quiet, "response/length_mean": length}, planned=60)
    for seed in range(20):
        few = rewards(seed, steps=60, samples=8, first=0.3, last=0.45)
        assert "length_runs_away" not in named("grpo", {"reward/mean": few, "response/length_mean": length}, planned=60)
    few = rewards(1, steps=60, samples=8, first=0.3, last=0.3)
    assert "length_runs_away" in named("grpo", {"reward/mean": few, "response/length_mean": exploded}, planned=60)


def test_three_quarters_of_a_run_count_in_steps_where_every_tenth_is_reported() -> None:
    rng = random.Random(1)
    reward: list[float | None] = [0.3 + rng.gauss(0, 0.01) for _ in range(60)]

    assert "reward_stays_flat" not in named("grpo", {"reward/mean": reward}, planned=1200)
    assert "reward_stays_flat" not in named("grpo", {"reward/mean": reward}, planned=1200, step=600)
    assert "reward_stays_flat" in named("grpo", {"reward/mean": reward}, planned=1200, step=900)
    assert "reward_stays_flat" not in named("grpo", {"reward/mean": reward[:19]}, planned=380, step=190)


def test_one_group_a_step_needs_more_steps_to_be_without_a_signal() -> None:
    """Six of ten groups have no variance: ten steps in a row may all be such, forty are not."""
    runs: list[Numbers] = []
    for seed in range(SEEDS):
        rng = random.Random(seed)
        zero = [float(rng.random() < 0.6) for _ in range(400)]
        deviation = [0.0 if value else rng.uniform(0.2, 0.5) for value in zero]
        reward = [rng.uniform(0.5, 2.5) for _ in zero]
        runs.append({"groups/zero_variance_fraction": [*zero], "reward/std": [*deviation], "reward/mean": [*reward]})

    for numbers in runs:
        for count in range(20, 401, 20):
            assert "no_signal" not in named("grpo", {name: values[:count] for name, values in numbers.items()})
    numbers["groups/zero_variance_fraction"] = [0.0, *[1.0] * 60]
    assert "no_signal" in named("grpo", numbers)


def test_a_reward_that_reaches_its_ceiling_again_and_again_is_without_a_signal_for_a_good_reason() -> None:
    """The most of this reward is 10.5, which nobody says."""
    rng = random.Random(3)
    rising = [rng.uniform(1.0, 6.0) for _ in range(20)]
    saturated = [10.5 if rng.random() < 0.7 else 7.5 for _ in range(20)] + [10.5] * 20
    zero = [0.0] * 20 + [float(value == 10.5) for value in saturated]
    numbers: Numbers = {"reward/mean": [*rising, *saturated], "groups/zero_variance_fraction": [*zero]}

    assert named("grpo", numbers) == {"reward_at_most"}
    stuck: Numbers = {"reward/mean": [1.5] * 60, "groups/zero_variance_fraction": [1.0] * 60}
    assert named("grpo", stuck) == {"no_signal", "reward_stays_flat"}  # it never rose


def test_a_reward_about_nothing_that_wanders_has_not_fallen_back() -> None:
    runs: list[Numbers] = []
    for seed in range(SEEDS):
        rng = random.Random(seed)
        runs.append({"reward/mean": [rng.gauss(0.02, 0.2) for _ in range(200)]})

    assert sum("does_not_converge" in named("grpo", run) for run in runs) <= 2


def test_a_fall_that_the_noise_of_ten_steps_hides_is_named_once_forty_show_it() -> None:
    fallen = 0
    for seed in range(SEEDS):
        before = rewards(seed, steps=100, samples=8, first=0.6, last=0.6)
        after = rewards(seed + SEEDS, steps=60, samples=8, first=0.2, last=0.2)
        fallen += "does_not_converge" in named("grpo", {"reward/mean": before + after})
    assert fallen >= 0.9 * SEEDS


def test_a_gradient_that_begins_where_no_reward_differs_does_not_jump() -> None:
    """Before groups differ, the gradient is that of the KL term alone."""
    begin: list[float | None] = [2e-6] * 10
    growing: list[float | None] = [0.004 * step for step in range(50)]

    assert "gradient_jumps" not in named("grpo", {"policy/grad_norm": begin + growing})
    assert "gradient_jumps" in named("grpo", {"policy/grad_norm": [0.1] * 10 + [9.0] * 20})


def test_a_step_that_the_scaling_of_losses_leaves_out_is_no_fault() -> None:
    fine: Numbers = {"loss/sft": [2.0] * 30, "policy/grad_norm": [0.5] * 25 + [math.nan] + [0.5] * 4}
    broken: Numbers = {"loss/sft": [2.0] * 30, "policy/grad_norm": [0.5] * 27 + [math.nan] * 3}

    assert "not_a_number" not in named("sft", fine)
    assert "not_a_number" in named("sft", broken)


def test_entropy_of_few_tokens_that_was_high_by_chance_has_not_collapsed() -> None:
    """Rollouts of a model that was fine-tuned on such answers: a few hundredths of a nat, some steps far above."""
    found = 0
    for seed in range(SEEDS):
        rng = random.Random(seed)
        entropy: list[float | None] = [0.02 * math.exp(rng.gauss(0, 1.0)) for _ in range(200)]
        reward: list[float | None] = [rng.choice((0.5, 1.0, 2.0)) for _ in range(200)]
        found += "entropy_collapse" in named("grpo", {"policy/entropy": entropy, "reward/mean": reward})
    assert found <= 4  # of runs without a fall, one moment of each


@pytest.mark.parametrize(
    "numbers",
    [
        {"policy/grad_norm": [0.0] * 20, "loss/pairs": [0.61, 0.6] * 10, "pairs/accuracy": [1.0] * 20},
        {"policy/grad_norm": [0.0] * 20, "loss/pairs": [0.69] * 20, "pairs/accuracy": [0.5] * 20},
    ],
)
def test_a_gradient_of_exactly_nothing_trains_nothing(numbers: Numbers) -> None:
    assert named("dpo", numbers) == {"not_trained"}
    assert named("sft", {"policy/grad_norm": [0.0] * 20, "loss/sft": [0.0] * 20}) == {"not_trained"}
    learned_by_heart: list[float | None] = [1e-5] * 20
    assert named("sft", {"policy/grad_norm": learned_by_heart, "loss/sft": learned_by_heart}) == set()


def test_responses_that_are_cut_a_little_less_often_are_still_cut() -> None:
    falling: list[float | None] = [0.93 - 0.0035 * step for step in range(40)]
    holding: list[float | None] = [0.79 + 0.01 * (step % 3) for step in range(30)]
    at_a_pace: list[float | None] = [0.73 - 0.009 * step for step in range(50)]

    assert "truncated" in named("grpo", {"response/truncated_fraction": falling + holding})
    assert "truncated" not in named("grpo", {"response/truncated_fraction": at_a_pace})


def test_four_samples_a_step_that_are_mostly_wrong_have_a_signal() -> None:
    """Right in a tenth: two of three steps have no right sample at all, and the reward comes out 0."""
    for seed in range(20):
        run = rewards(seed, steps=200, samples=4, first=0.1, last=0.3)
        assert not any("no_signal" in named("grpo", {"reward/mean": run[:end]}) for end in range(20, 201, 20))
    assert "no_signal" in named(
        "grpo", {"reward/mean": [*rewards(1, steps=40, samples=4, first=0.3, last=0.3)] + [0.0] * 20}
    )


def test_an_entropy_that_grows_while_the_reward_does_is_no_explosion() -> None:
    entropy: list[float | None] = [0.3 * 1.05 ** min(step, 60) for step in range(80)]
    rising: list[float | None] = [0.1 + 0.005 * step for step in range(80)]
    falling: list[float | None] = [0.4 - 0.005 * step for step in range(80)]

    assert "entropy_explodes" in named("grpo", {"policy/entropy": entropy, "reward/mean": falling})
    assert "entropy_explodes" not in named("grpo", {"policy/entropy": entropy, "reward/mean": rising})
    small: list[float | None] = [0.02 * 1.05 ** min(step, 60) for step in range(80)]
    assert "entropy_explodes" not in named("grpo", {"policy/entropy": small, "reward/mean": falling})


@pytest.mark.parametrize(("tokens", "wanted"), [(4.0, False), (40.0, True)])
def test_answers_of_a_few_tokens_may_differ_more_per_token(tokens: float, wanted: bool) -> None:
    numbers: Numbers = {"kl/reference": [0.1] * 5 + [0.7] * 10, "response/length_mean": [tokens] * 15}

    assert ("kl_runs_away" in named("grpo", numbers, planned=100)) == wanted


@pytest.mark.parametrize(
    ("held_out", "wanted"), [([9.7, 9.8, 10.4, 10.6, 10.6], True), ([9.7, 9.6, 9.8, 9.9, 9.9], False)]
)
def test_a_held_out_loss_that_ends_above_its_start_is_named(held_out: list[float | None], wanted: bool) -> None:
    assert ("overfits" in named("sft", {"eval/loss": held_out}, planned=100)) == wanted


def test_pairs_of_which_neither_loss_nor_margin_moves_are_named() -> None:
    loss: list[float | None] = [0.693 + 0.001 * (step % 5) for step in range(100)]
    still: list[float | None] = [0.01 * (step % 3 - 1) for step in range(100)]
    rises: list[float | None] = [0.01 * step for step in range(100)]

    assert "pairs_not_learned" in named("dpo", {"loss/pairs": loss, "pairs/margin": still}, planned=100)
    assert "pairs_not_learned" not in named("dpo", {"loss/pairs": loss, "pairs/margin": rises}, planned=100)


@pytest.mark.parametrize(("last", "wanted"), [(11.18, True), (10.9, False)])
def test_a_loss_that_falls_by_less_than_a_hundredth_is_told(last: float, wanted: bool) -> None:
    loss: list[float | None] = [11.24 + (last - 11.24) * step / 400 + 0.001 * (step % 4) for step in range(400)]

    assert ("loss_stays_flat" in named("sft", {"loss/sft": loss}, planned=400)) == wanted


@pytest.mark.parametrize(
    ("held_out", "wanted"),
    [
        ([1.53, 1.43, 1.40, 1.38, 1.36, 1.53, 1.54, 1.52], True),  # two epochs, then the third is learned by heart
        ([1.53, 1.43, 1.40, 1.38, 1.36, 1.53, 1.38, 1.52], False),  # as far apart as the evaluations themselves
    ],
)
def test_an_eighth_above_the_lowest_is_named_of_eight_evaluations(held_out: list[float | None], wanted: bool) -> None:
    """The turn itself is two of the six second differences, of those of the later half both."""
    assert ("overfits" in named("sft", {"eval/loss": held_out}, planned=100)) == wanted


@pytest.mark.parametrize(
    ("cut", "wanted"),
    [
        ([0.05, 0.15, 0.1, 0.125] * 8, False),  # 42 of 400: may be fewer than a tenth
        ([0.5, 0.0, 0.0] * 10, False),  # 7 of 40
        ([0.0] * 20 + [0.025] * 6 + [0.3] * 4, False),  # four steps of ten
        ([0.2, 0.15, 0.175, 0.125] * 8, True),  # 65 of 400
        ([0.5, 0.0] * 15, True),  # 10 of 40
    ],
)
def test_cut_responses_are_told_by_how_many_there_were(cut: list[float | None], wanted: bool) -> None:
    assert ("truncated" in named("grpo", {"response/truncated_fraction": cut}, planned=300)) == wanted


def test_a_mean_that_comes_again_is_no_signal_only_where_no_deviation_is_told() -> None:
    """A trainer that tells the values of ten steps in each of them repeats all of them."""
    told: Numbers = {"reward/mean": [0.5 + step // 20 * 0.01 for step in range(40)]}
    deviation: list[float | None] = [0.08] * 40

    assert "no_signal" in named("grpo", told, planned=40)
    assert "no_signal" not in named("grpo", {**told, "reward/std": deviation}, planned=40)


def test_a_rise_that_may_go_on_counts_twice_at_half_of_the_run() -> None:
    spec = parse_spec({"algorithm": "grpo", "trainer": {"name": "trl"}})
    numbers = {"reward/mean": rewards(3, steps=100, samples=64, first=0.3, last=0.3)}

    def unseen(planned: int) -> float:
        (value,) = with_meanings(spec, numbers, planned=planned, step=100)["reward/unseen_rise"]
        assert value is not None
        return value

    assert [unseen(planned) / unseen(0) for planned in (100, 150, 200, 5000)] == pytest.approx([1, 1.5, 2, 2])


def test_what_few_samples_hide_is_told_as_not_proven() -> None:
    run = rewards(5, steps=60, samples=4, first=0.3, last=0.3)

    assert named("grpo", {"reward/mean": run}, planned=60) == {"reward_rise_not_seen"}
    assert named("grpo", {"reward/mean": rewards(5, steps=60, samples=64, first=0.3, last=0.8)}, planned=60) == set()


@pytest.mark.parametrize(("step", "wanted"), [(100, True), (22, False)])
def test_twenty_reports_of_five_steps_each_are_enough_to_call_a_reward_flat(step: int, wanted: bool) -> None:
    run: list[float | None] = [0.2 + 0.01 * (report % 2) for report in range(20)]

    assert ("reward_stays_flat" in named("grpo", {"reward/mean": run}, planned=step, step=step)) == wanted


def test_pairs_whose_margins_stay_at_nothing_are_named_in_a_short_run() -> None:
    loss: list[float | None] = [0.6931] * 30
    still: list[float | None] = [1e-5 * (step % 3 - 1) for step in range(30)]
    moves: list[float | None] = [2e-3 * (step % 3 - 1) for step in range(30)]

    assert "pairs_not_learned" in named("dpo", {"loss/pairs": loss, "pairs/margin": still}, planned=40)
    assert "pairs_not_learned" not in named("dpo", {"loss/pairs": loss, "pairs/margin": still}, planned=400)
    assert "pairs_not_learned" not in named("dpo", {"loss/pairs": loss, "pairs/margin": moves}, planned=40)


@pytest.mark.parametrize(
    ("first", "last", "wanted"),
    [(1.05, 1.0, False), (0.4, 0.7, True), (2.5, 2.4, True)],
)
def test_a_policy_that_began_away_from_its_reference_does_not_run_away(first: float, last: float, wanted: bool) -> None:
    """TRL takes a model without its adapters for the reference: those that were tuned before are away from it."""
    divergence: list[float | None] = [first + (last - first) * min(1.0, step / 20) for step in range(40)]

    assert ("kl_runs_away" in named("grpo", {"kl/reference": divergence}, planned=100)) == wanted


def test_a_start_of_few_values_is_less_sure_than_the_level_of_a_window() -> None:
    """Five values of 0.28 before 75 about 0.19: a start that far above by chance is no reward that falls back."""
    rng = random.Random(4)
    reward: list[float | None] = [0.28 + rng.gauss(0, 0.06) for _ in range(5)]
    reward += [0.19 + rng.gauss(0, 0.06) for _ in range(75)]
    collapsed: list[float | None] = [0.28 + rng.gauss(0, 0.06) for _ in range(40)]
    collapsed += [0.05 + rng.gauss(0, 0.01) for _ in range(40)]

    assert "does_not_converge" not in named("grpo", {"reward/mean": reward}, planned=400)
    assert "does_not_converge" in named("grpo", {"reward/mean": collapsed}, planned=400)


def test_cut_responses_are_a_notice_while_the_reward_rises_and_few_of_them_are_cut() -> None:
    """One in seven is cut: of a reward that goes from 0.3 to 0.9 a notice, an alarm of one that stays; four of ten are
    an alarm in both."""
    rises = rewards(1, steps=60, samples=64, first=0.3, last=0.9)
    stays = rewards(1, steps=60, samples=64, first=0.3, last=0.3)
    few: list[float | None] = [0.13, 0.14, 0.15] * 20
    many: list[float | None] = [0.39, 0.4, 0.41] * 20

    def of(reward: list[float | None], cut: list[float | None]) -> set[str]:
        numbers = {"reward/mean": reward, "response/truncated_fraction": cut}
        return named("grpo", numbers, planned=60) & {"truncated", "cut_while_reward_rises"}

    assert of(rises, few) == {"cut_while_reward_rises"}
    assert of(stays, few) == of(rises, many) == of(stays, many) == {"truncated"}


def test_a_policy_that_has_not_moved_has_a_flat_reward_whatever_noise_hides() -> None:
    """A divergence of 0.0007 from the first step on is of two ways to compute; of one that grows nothing is said."""
    run = rewards(5, steps=60, samples=4, first=0.3, last=0.3)
    still: list[float | None] = [0.0007 + 0.00005 * (step % 3) for step in range(60)]
    moved: list[float | None] = [0.0001 * step for step in range(60)]

    assert named("grpo", {"reward/mean": run, "kl/reference": still}, planned=60) == {"reward_stays_flat"}
    assert named("grpo", {"reward/mean": run, "kl/reference": moved}, planned=60) == {"reward_rise_not_seen"}


def test_a_policy_that_only_begins_to_move_has_no_flat_reward_yet() -> None:
    run = rewards(5, steps=60, samples=512, first=0.3, last=0.3)
    begins: list[float | None] = [1e-6 * 1.15**step for step in range(60)]
    went: list[float | None] = [0.004 + 1e-5 * step for step in range(60)]

    assert "reward_stays_flat" not in named("grpo", {"reward/mean": run, "kl/reference": begins}, planned=60)
    assert "reward_stays_flat" in named("grpo", {"reward/mean": run, "kl/reference": went}, planned=60)


def test_a_reward_that_falls_while_the_gradient_grows_is_named_within_ten_steps() -> None:
    """Fourteen steps: six standard errors of five values say nothing of a fall by half, the gradient says it, too."""
    reward: list[float | None] = [0.45, 0.47, 0.52, 0.55, 0.57, 0.56, 0.53, 0.54, 0.49, 0.46, 0.43, 0.4, 0.35, 0.31]
    grows: list[float | None] = [1.0, 0.9, 1.1, 1.0, 1.2, 1.5, 1.8, 2.0, 2.4, 2.9, 3.4, 3.9, 4.4, 5.0]
    holds: list[float | None] = [1.0, 0.9, 1.1, 1.0, 1.2, 1.1, 0.9, 1.0, 1.1, 1.0, 0.9, 1.0, 1.1, 1.0]

    assert "does_not_converge" in named("grpo", {"reward/mean": reward, "policy/grad_norm": grows}, planned=40)
    assert "does_not_converge" not in named("grpo", {"reward/mean": reward, "policy/grad_norm": holds}, planned=40)


def test_pairs_whose_margin_rises_are_learned_though_half_of_them_are_in_order() -> None:
    """An accuracy counts ties as wrong, and noise may hide that the loss falls: a margin that is reported says it."""
    rng = random.Random(2)
    loss: list[float | None] = [0.65 + rng.gauss(0, 0.07) for _ in range(100)]
    even: list[float | None] = [0.5] * 100
    rises: list[float | None] = [0.003 * step + rng.gauss(0, 0.05) for step in range(100)]

    assert "pairs_not_learned" in named("dpo", {"loss/pairs": loss, "pairs/accuracy": even}, planned=100)
    learned = {"loss/pairs": loss, "pairs/accuracy": even, "pairs/margin": rises}
    assert "pairs_not_learned" not in named("dpo", learned, planned=100)
