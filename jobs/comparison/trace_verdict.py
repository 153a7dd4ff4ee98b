"""What a difference of two traces allows to say, in one word."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from jobs.comparison.stats import ConfidenceInterval, welch_interval
from jobs.traces.difference import TraceComparison

SAME, CLEAR = 0.02, 0.05
"""Below the first share of step time there is no difference: clocks alone move a step by a percent. From the second on
one recording a side is believed."""
LEAST_STEPS = 3
"""So many steps a side have a spread."""

Word = Literal["cannot", "same_recording", "none", "too_small", "slower", "faster", "shares"]
"""cannot: be compared. none: no difference. too_small: to say. shares: times per second add up to a second on both
sides, so that only shares can differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceVerdict:
    """The word, and the change that it rests on: `change` is after / before - 1, None where it means nothing.

    `low` and `high` are the 95 % interval of the change by the spread of steps, None where there are too few.
    """

    word: Word
    change: float | None
    low: float | None = None
    high: float | None = None


def verdict_of(compared: TraceComparison) -> TraceVerdict:
    """Return the verdict of two traces, comparability first."""
    difference = compared.difference
    change = difference.after / difference.before - 1 if difference.before and compared.per != "second" else None
    if not compared.comparability.is_enough:
        return TraceVerdict(word="cannot", change=change)
    if compared.comparability.is_same:
        return TraceVerdict(word="same_recording", change=change)
    if change is None:
        return TraceVerdict(word="shares", change=None)
    spread = _spread(compared.walls) if compared.per == "step" else None
    if spread is None:
        return TraceVerdict(word=_word(change, is_shown=abs(change) >= CLEAR), change=change)
    return TraceVerdict(
        word=_word(change, is_shown=spread.excludes(0)),
        change=change,
        low=spread.low / difference.before,
        high=spread.high / difference.before,
    )


def _word(change: float, *, is_shown: bool) -> Word:
    if abs(change) < SAME:
        return "none"
    if not is_shown:
        return "too_small"
    return "slower" if change > 0 else "faster"


def _spread(walls: tuple[tuple[int, ...], tuple[int, ...]]) -> ConfidenceInterval | None:
    """Return the interval of the difference of mean steps [ns]; None where a side has too few steps."""
    before, after = (np.array(side, np.float64) for side in walls)
    return welch_interval(after, before) if min(len(before), len(after)) >= LEAST_STEPS else None
