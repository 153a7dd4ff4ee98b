"""Verifiable arithmetic: 0.9 if the last `#### N` is the expected number, 0.1 for having written one."""

import re
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation

from jobs.catalog.spec.runspec import RewardSource
from jobs.engine.rollouts.reward import Completion, Score

CORRECT, FORMAT = 0.9, 0.1
_MARKED = re.compile(r"####\s*\$?(-?[\d,]*\.?\d+)")


def number(text: str) -> Decimal | None:
    """Return the number that `text` is (1,234 and 1234.0 are the same one), or None.

    Of a worked solution, as in GSM8K's answer column, it is the one behind the last `####`.
    """
    marked = _MARKED.findall(text)
    try:
        return Decimal((marked[-1] if marked else text).strip().lstrip("$").replace(",", ""))
    except InvalidOperation:
        return None


class MathReward:
    """Compare the last number behind `####` with the answer."""

    def score(self, completions: Sequence[Completion]) -> list[Score]:
        """Return the scores; parts are `correct` and `format`, each 0 or 1."""
        return [self._score(c) for c in completions]

    def close(self) -> None:
        """Nothing to end."""

    @staticmethod
    def _score(completion: Completion) -> Score:
        marked = _MARKED.findall(completion.completion)
        expected = number(completion.answer)
        is_right = bool(marked) and expected is not None and number(marked[-1]) == expected
        parts = {"correct": float(is_right), "format": float(bool(marked))}
        return Score(total=CORRECT * parts["correct"] + FORMAT * parts["format"], parts=parts, is_right=is_right)


class Plugin:
    """How the registry opens it."""

    def open(self, source: RewardSource, *, timeout_seconds: float) -> MathReward:  # noqa: ARG002
        """Return the scorer; it takes no options."""
        return MathReward()


PLUGIN = Plugin()
