"""1 if the completion ends with one `#### N` and nothing after it; else 0. It does not look at the answer."""

import re
from collections.abc import Sequence

from jobs.catalog.spec.runspec import RewardPart
from jobs.engine.rollouts.reward import Completion, Score, ScoringLimits

_ENDING = re.compile(r"####\s*-?(?:[\d,]*\.\d+|[\d,]*\d)\s*$")  # linear: one way to read a row of digits


class FormatReward:
    """Look only at the form of the ending."""

    def score(self, completions: Sequence[Completion]) -> list[Score]:
        """Return the scores; the one part is `format`. Whether an answer is right is not its business: `is_right` is
        None.
        """
        return [self._score(c.completion) for c in completions]

    def close(self) -> None:
        """Nothing to end."""

    @staticmethod
    def _score(text: str) -> Score:
        value = float(text.count("####") == 1 and bool(_ENDING.search(text)))
        return Score(total=value, parts={"format": value}, is_right=None)


class Plugin:
    """How the registry opens it."""

    def open(self, source: RewardPart, limits: ScoringLimits) -> FormatReward:  # noqa: ARG002
        """Return the scorer; it takes no options."""
        return FormatReward()


PLUGIN = Plugin()
