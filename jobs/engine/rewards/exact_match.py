"""1 if the completion is the expected answer, white space at the ends and case aside; else 0."""

from collections.abc import Sequence

from jobs.catalog.spec.runspec import RewardPart
from jobs.engine.rollouts.reward import Completion, Score, ScoringLimits


class ExactMatchReward:
    """Compare the whole completion with the answer."""

    def score(self, completions: Sequence[Completion]) -> list[Score]:
        """Return the scores; the one part is `match`."""
        return [self._score(c) for c in completions]

    def close(self) -> None:
        """Nothing to end."""

    @staticmethod
    def _score(completion: Completion) -> Score:
        is_right = completion.completion.strip().casefold() == completion.answer.strip().casefold()
        return Score(total=float(is_right), parts={"match": float(is_right)}, is_right=is_right)


class Plugin:
    """How the registry opens it."""

    def open(self, source: RewardPart, limits: ScoringLimits) -> ExactMatchReward:  # noqa: ARG002
        """Return the scorer; it takes no options."""
        return ExactMatchReward()


PLUGIN = Plugin()
