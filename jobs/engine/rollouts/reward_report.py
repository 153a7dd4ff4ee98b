"""From scores to what is learned from and what is said of them: rewards, skipped rows, metrics, notes."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from jobs.engine.batch import Batch
from jobs.engine.rollouts.reward import Score

Note = Callable[[str], None]


def fill_skipped(rewards_B: Tensor, scores: Sequence[Score], *, group_size: int) -> Tensor:
    """Return the rewards, in which those that were skipped have the mean of their group's others: float32 [B].

    Groups of `group_size` lie together. Then a baseline that is the group's mean is that of the others, and their own
    advantage is 0. Of a group without a score all have 0.
    """
    totals_NG = rewards_B.view(-1, group_size)
    is_scored_NG = torch.tensor([not score.is_skipped for score in scores]).view(-1, group_size)
    mean_N1 = torch.where(is_scored_NG, totals_NG, 0.0).sum(dim=1, keepdim=True)
    mean_N1 = mean_N1 / is_scored_NG.sum(dim=1, keepdim=True).clamp(min=1)
    return torch.where(is_scored_NG, totals_NG, mean_N1).view(-1)


def without_skipped(batch: Batch, scores: Sequence[Score]) -> Batch:
    """Return the batch in which no token of a completion counts that gives no signal."""
    is_kept_B = torch.tensor([not score.is_skipped for score in scores])
    return replace(batch, mask_BL=batch.mask_BL & is_kept_B.unsqueeze(1))


class RewardReport:
    """The metrics of each step's scores, and a note of the first failure and of the first check that was ended."""

    def __init__(self, *, counts_failures: bool) -> None:
        self._counts_failures, self._has_failed, self._has_abandoned = counts_failures, False, False

    def metrics(self, scores: Sequence[Score], note: Note) -> dict[str, float]:
        """Return reward/mean and, of two or more, reward/std over what was scored, each part's mean, and the fractions
        that went wrong.

        `note` is called with a sentence the first time that something did.
        """
        scored = [score for score in scores if not score.is_skipped]
        totals_B = torch.tensor([score.total for score in scored], dtype=torch.float32)
        return {
            "reward/mean": float(totals_B.mean()),
            **({"reward/std": float(totals_B.std())} if len(scored) > 1 else {}),
            **mean_parts(scores),
            **self._failed(scores, note),
            **self._abandoned(scores, note),
        }

    def _failed(self, scores: Sequence[Score], note: Note) -> dict[str, float]:
        failures = [score for score in scores if score.failure]
        if failures and not self._has_failed:
            self._has_failed = True
            outcome = "they give no signal" if failures[0].is_skipped else "they get reward.failure_score"
            note(
                f"{len(failures)} of {len(scores)} responses could not be scored, and {outcome} (reward.on_failure). "
                f"The metric reward/failed_fraction has how many cannot. The first: {failures[0].failure}"
            )
        return {"reward/failed_fraction": len(failures) / len(scores)} if self._counts_failures else {}

    def _abandoned(self, scores: Sequence[Score], note: Note) -> dict[str, float]:
        checked = [score.is_abandoned for score in scores if score.is_abandoned is not None]
        if any(checked) and not self._has_abandoned:
            self._has_abandoned = True
            note(
                f"The checks of {sum(checked)} of {len(scores)} responses took too long and were ended; they count as "
                "wrong. The metric reward/abandoned_fraction has how many do."
            )
        return {"reward/abandoned_fraction": sum(checked) / len(scores)} if checked else {}


def mean_parts(scores: Sequence[Score]) -> dict[str, float]:
    """Return the mean of each part of the reward, as `reward/<part>`, over the completions that have it."""
    names = dict.fromkeys(name for score in scores for name in score.parts)
    if len(names) < 2:
        return {}
    by_name = {name: [score.parts[name] for score in scores if name in score.parts] for name in names}
    return {f"reward/{name}": sum(values) / len(values) for name, values in by_name.items()}
