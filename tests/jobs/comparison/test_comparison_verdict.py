"""What is said of a run against the base: the outcome decides, then the time of a step, and never too little data."""

import numpy as np
import pytest

from jobs.catalog.algorithm import algorithms
from jobs.comparison.measures import measure_rows
from jobs.comparison.read import SeriesPoints, StepWindow, common_window
from jobs.comparison.stats import ConfidenceInterval
from jobs.comparison.verdict import decide, paired_difference, verdict


def interval(low: float, high: float) -> ConfidenceInterval:
    return ConfidenceInterval(value=(low + high) / 2, low=low, high=high, n=100)


def column(*values: float, first: int = 1) -> SeriesPoints:
    return SeriesPoints(x=np.arange(first, first + len(values)), y=np.array(values))


SAME, FASTER, SLOWER = interval(0.9, 1.1), interval(0.5, 0.6), interval(1.4, 1.6)
NONE, UP, DOWN = interval(-0.1, 0.1), interval(0.1, 0.3), interval(-0.3, -0.1)


@pytest.mark.parametrize(
    ("speed", "outcome", "gain", "badge"),
    [
        (FASTER, "reward/mean", NONE, "better"),
        (SLOWER, "reward/mean", NONE, "worse"),
        (SAME, "reward/mean", NONE, "no_difference"),
        (FASTER, "reward/mean", DOWN, "worse"),  # the outcome decides
        (SLOWER, "reward/mean", UP, "better"),
        (SAME, "loss/sft", UP, "worse"),  # of a loss, lower is better
        (SAME, "loss/sft", DOWN, "better"),
        (FASTER, "reward/mean", None, "not_enough"),  # faster, and nobody knows whether it learns
        (FASTER, "", None, "better"),  # nothing to learn in common
        (None, "reward/mean", UP, "better"),
        (None, "reward/mean", NONE, "no_difference"),
        (None, "", None, "not_enough"),
    ],
)
def test_the_badge(speed: ConfidenceInterval | None, outcome: str, gain: ConfidenceInterval | None, badge: str) -> None:
    assert decide(speed=speed, outcome=outcome, gain=gain) == badge


def test_differences_are_taken_at_the_same_steps() -> None:
    run = column(*[1.0, 2.0] * 10, first=6)  # steps 6 to 25
    base = column(*[100.0] * 5, *[0.0, 1.0] * 10, *[100.0] * 9)  # steps 1 to 34, 6 to 25 in the middle

    found = paired_difference(run, base)

    assert found == ConfidenceInterval(value=1.0, low=1.0, high=1.0, n=20)


def test_a_verdict_drops_the_first_three_steps() -> None:
    slow_start = [90.0, 80.0, 70.0]
    run = {"time/step_seconds": column(*slow_start, *[1.0, 1.02] * 20), "reward/mean": column(*[0.5, 0.6] * 20)}
    base = {"time/step_seconds": column(*slow_start, *[2.0, 2.04] * 20), "reward/mean": column(*[0.5, 0.6] * 20)}

    found = verdict(run_id="r-2", run=run, base=base)

    assert found.badge == "better"
    assert found.speed is not None
    assert found.speed.value == pytest.approx(0.5)
    assert found.speed.n == 40
    assert found.gain is not None
    assert found.gain.value == pytest.approx(0.0)


def test_every_algorithm_has_an_outcome() -> None:
    for info in algorithms().values():
        one = {info.metric: column(*[0.5, 0.6] * 20)}
        assert verdict(run_id="r-2", run=one, base=one).outcome == info.metric, info.id
    both = {"pairs/accuracy": column(*[0.8, 0.9] * 20), "loss/pairs": column(*[0.5, 0.6] * 20)}
    worse = {"pairs/accuracy": column(*[0.6, 0.7] * 20), "loss/pairs": column(*[0.1, 0.2] * 20)}
    assert verdict(run_id="r-2", run=worse, base=both).badge == "worse", "whatever the loss, which beta scales"


def test_runs_that_share_no_outcome_say_so() -> None:
    found = verdict(run_id="r-2", run={"loss/sft": column(1.0)}, base={"reward/mean": column(1.0)})

    assert (found.outcome, found.gain, found.badge) == ("", None, "not_enough")


def test_a_faster_step_makes_no_run_better_that_learns_something_else() -> None:
    pairs = {"time/step_seconds": column(*[1.0, 1.02] * 20), "loss/pairs": column(*[0.5, 0.6] * 20)}
    reward = {"time/step_seconds": column(*[2.0, 2.04] * 20), "reward/mean": column(*[0.5, 0.6] * 20)}
    neither = [{"time/step_seconds": side["time/step_seconds"]} for side in (pairs, reward)]

    found = verdict(run_id="r-2", run=pairs, base=reward)

    assert (found.badge, found.is_speed_comparable) == ("not_comparable", True)
    assert verdict(run_id="r-2", run=neither[0], base=neither[1]).badge == "better"


def test_the_window_is_common_to_all_that_have_begun() -> None:
    assert common_window([400, 184, 0, 300]) == StepWindow(low=1, high=184, total=184)
    assert common_window([100_000, 90_000]) == StepWindow(low=85_001, high=90_000, total=90_000)
    assert common_window([0]) is None


def test_measures_say_better_only_where_the_interval_does() -> None:
    base = {"time/step_seconds": column(9.0, *[2.0, 2.1] * 21), "kl/reference": column(*np.resize([1, 3, 2], 40))}
    run = {"time/step_seconds": column(9.0, *[1.0, 1.1] * 21), "kl/reference": column(*np.resize([3, 1, 2, 4, 0], 40))}

    rows = {row.measure.metric: row for row in measure_rows(columns=[base, run], peaks=[{}, {}], base=0)}

    step, kl = rows["time/step_seconds"].cells, rows["kl/reference"].cells
    assert step[0].word == ""
    assert (step[1].word, round(step[1].value or 0, 3)) == ("better", 1.05)
    assert step[1].change is not None
    assert step[1].change.share == pytest.approx(1.05 / 2.05 - 1)
    assert kl[1].word == "not_shown"
    assert set(rows) == {"time/step_seconds", "kl/reference"}


def test_what_grows_by_factors_is_compared_by_its_ratio() -> None:
    noise = np.resize([0.9, 1.1, 1.0], 60)
    base = {"kl/reference": column(0.0, *(0.04 * noise))}  # a policy starts at its reference
    away = {"kl/reference": column(0.0, *(0.04 * np.geomspace(1, 225, 60) * noise[::-1]))}

    cell = measure_rows(columns=[base, away], peaks=[{}, {}], base=0)[0].cells[1]

    ratio = np.geomspace(1, 225, 60) * noise[::-1] / noise
    assert cell.contrast is not None
    assert cell.contrast.value == pytest.approx(np.exp(np.log(ratio[-20:]).mean()))
    assert (cell.is_ratio, cell.word) == (True, "higher")  # the difference alone, 0.6 to 9, shows none

    below = {"kl/reference": column(0.0, *np.resize([0.03, -0.01], 60))}  # as a k1 estimate may be
    assert not measure_rows(columns=[base, below], peaks=[{}, {}], base=0)[0].cells[1].is_ratio


def test_a_measure_that_one_run_lacks_is_a_dash() -> None:
    rows = measure_rows(columns=[{"reward/mean": column(*[0.5] * 20)}, {}], peaks=[{}, {}], base=0)

    assert rows[0].cells[0].value == 0.5
    assert rows[0].cells[1].value is None


def test_held_out_values_are_compared_at_the_same_step_only() -> None:
    base = {"eval/accuracy": SeriesPoints(x=np.array([50, 100]), y=np.array([0.4, 0.6]))}
    same = {"eval/accuracy": SeriesPoints(x=np.array([100]), y=np.array([0.7]))}
    behind = {"eval/accuracy": SeriesPoints(x=np.array([75]), y=np.array([0.7]))}

    cells = measure_rows(columns=[base, same, behind], peaks=[{}] * 3, base=0)[0].cells

    assert cells[1].change is not None
    assert cells[1].change.difference == pytest.approx(0.1)
    assert cells[1].word == ""  # one value has no interval that could say so
    assert (cells[2].value, cells[2].step, cells[2].change) == (0.7, 75, None)


def test_peaks_are_held_against_the_base_and_called_nothing() -> None:
    cells = measure_rows(columns=[{}, {}], peaks=[{"device_memory_bytes": 2e9}, {"device_memory_bytes": 3e9}], base=0)[
        0
    ].cells

    assert cells[1].change is not None
    assert (cells[1].change.share, cells[1].word) == (0.5, "")  # no interval tells it from noise
