"""What is learned from scores and what is said of them, with completions that could not be scored."""

import pytest
import torch

from jobs.engine.advantages import group_advantages
from jobs.engine.batch import make_batch
from jobs.engine.rollouts.reward import Score
from jobs.engine.rollouts.reward_report import RewardReport, mean_parts, rewards_of, without_skipped


def score(total: float, **more: object) -> Score:
    return Score(total=total, parts={"a": total}, is_right=None, **more)  # type: ignore[arg-type]


SKIPPED = Score(total=9.0, parts={}, is_right=None, failure="The server is down.", is_skipped=True)


def test_a_skipped_completion_has_the_advantage_zero_and_leaves_the_others_their_mean() -> None:
    rewards_B = rewards_of([score(1.0), score(0.0), SKIPPED, score(0.5)], group_size=4)

    assert rewards_B.tolist() == [1.0, 0.0, 0.5, 0.5]
    advantages_B = group_advantages(rewards_B, group_size=4, normalize_by_std=False)
    assert advantages_B.tolist() == [0.5, -0.5, 0.0, 0.0]


def test_a_group_without_a_score_takes_nothing_from_the_others() -> None:
    assert rewards_of([SKIPPED, SKIPPED, score(1.0), score(3.0)], group_size=2).tolist() == [0.0, 0.0, 1.0, 3.0]


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


def test_a_part_is_averaged_over_the_completions_that_have_it() -> None:
    both = Score(total=1.0, parts={"math": 1.0, "judge": 0.5}, is_right=None)
    one = Score(total=1.0, parts={"math": 0.0}, is_right=None, failure="no")

    assert mean_parts([both, one]) == {"reward/math": 0.5, "reward/judge": 0.5}
