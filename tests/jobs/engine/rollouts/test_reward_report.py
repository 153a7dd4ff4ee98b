"""What is learned from scores and what is said of them, with completions that could not be scored."""

import pytest
import torch

from jobs.engine.advantages import group_advantages
from jobs.engine.batch import make_batch
from jobs.engine.rollouts.reward import Score
from jobs.engine.rollouts.reward_report import RewardReport, fill_skipped, mean_parts, without_skipped


def score(total: float, **more: object) -> Score:
    return Score(total=total, parts={"a": total}, is_right=None, **more)  # type: ignore[arg-type]


def filled(scores: list[Score], group_size: int) -> torch.Tensor:
    return fill_skipped(torch.tensor([each.total for each in scores]), scores, group_size=group_size)


SKIPPED = Score(total=9.0, parts={}, is_right=None, failure="The server is down.", is_skipped=True)


def test_a_skipped_completion_has_the_advantage_zero_and_leaves_the_others_their_mean() -> None:
    rewards_B = filled([score(1.0), score(0.0), SKIPPED, score(0.5)], group_size=4)

    assert rewards_B.tolist() == [1.0, 0.0, 0.5, 0.5]
    advantages_B = group_advantages(rewards_B, group_size=4, normalize_by_std=False)
    assert advantages_B.tolist() == [0.5, -0.5, 0.0, 0.0]


def test_a_group_without_a_score_takes_nothing_from_the_others() -> None:
    assert filled([SKIPPED, SKIPPED, score(1.0), score(3.0)], group_size=2).tolist() == [0.0, 0.0, 1.0, 3.0]


def test_no_token_of_a_skipped_completion_counts() -> None:
    batch = make_batch([([1, 2, 3], [False, True, True])] * 2, pad_id=0)

    kept = without_skipped(batch, [SKIPPED, score(1.0)])

    assert kept.mask_BL.tolist() == [[False, False, False], [False, True, True]]
    assert torch.equal(kept.tokens_BL, batch.tokens_BL)


def test_metrics_are_of_what_was_scored_and_the_first_failure_is_noted_once() -> None:
    notes: list[str] = []
    report = RewardReport(counts_failures=True)

    before = report.metrics([score(1.0), score(2.0)], notes.append)
    metrics = report.metrics([score(1.0), SKIPPED, score(2.0), SKIPPED], notes.append)
    report.metrics([score(1.0), SKIPPED], notes.append)

    assert before["reward/failed_fraction"] == 0.0
    assert metrics["reward/mean"] == pytest.approx(1.5)
    assert metrics["reward/failed_fraction"] == 0.5
    (note,) = notes
    assert "2 of 4 responses could not be scored" in note
    assert "The server is down." in note


def test_a_run_that_stops_at_the_first_failure_counts_none() -> None:
    metrics = RewardReport(counts_failures=False).metrics([score(1.0), score(2.0)], print)

    assert set(metrics) == {"reward/mean", "reward/std"}


def test_abandoned_checks_are_counted_and_noted_once() -> None:
    notes: list[str] = []
    report = RewardReport(counts_failures=False)
    checked, abandoned = score(0.0, is_abandoned=False), score(0.0, is_abandoned=True)

    def fraction(*scores: Score) -> float | None:
        return report.metrics(scores, notes.append).get("reward/abandoned_fraction")

    assert fraction(score(0.0), score(0.0)) is None
    assert fraction(checked, checked) == 0.0
    assert fraction(abandoned, checked) == 0.5
    assert fraction(checked, checked) == 0.0
    assert fraction(abandoned, abandoned) == 1.0
    (note,) = notes
    assert note.startswith("The checks of 1 of 2 responses took too long and were ended; they count as wrong.")


def test_a_part_is_averaged_over_the_completions_that_have_it() -> None:
    both = Score(total=1.0, parts={"math": 1.0, "judge": 0.5}, is_right=None)
    one = Score(total=1.0, parts={"math": 0.0}, is_right=None, failure="no")

    assert mean_parts([both, one]) == {"reward/math": 0.5, "reward/judge": 0.5}
