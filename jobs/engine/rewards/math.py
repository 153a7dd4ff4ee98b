r"""Verifiable mathematics: 0.9 if the response's answer equals the expected one, 0.1 for having marked it.

Marked is an answer behind `####` or in `\boxed{...}`. One after *Final answer is* or *Answer:*, or in a formula at the
very end, counts as well, without the 0.1. Where a number is expected and one stands behind `####`, these two alone are
compared.
"""

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass, replace

from jobs.catalog.spec.runspec import RewardPart
from jobs.engine.rollouts.answers import expected_answer, given_answer, marked_number, number, quick_equal
from jobs.engine.rollouts.reward import Completion, FileLimits, RewardFailed, Score, ScoringLimits
from jobs.engine.rollouts.reward_pool import RewardPool

CORRECT, FORMAT = 0.9, 0.1
CHECK_SECONDS = 10.0
"""The longest check; the milliseconds of an ordinary one leave room for a busy machine."""
_SOURCE = "from jobs.engine.rollouts import math_check\nmath_check.prepare()\nreward = math_check.reward\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pair:
    """Two answers that only algebra can compare."""

    expected: str
    actual: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _ReadResponse:
    """What a response gives: a marked answer or not, and whether it is right, or the pair that has to be checked."""

    is_marked: bool
    verdict: bool | _Pair


class MathReward:
    """Compare what responses give with the answers; its processes start when a check needs algebra."""

    def __init__(self, limits: ScoringLimits) -> None:
        self._limits = replace(limits, timeout_seconds=min(limits.timeout_seconds, CHECK_SECONDS), file=FileLimits())
        self._pool: RewardPool | None = None

    def score(self, completions: Sequence[Completion]) -> list[Score]:
        """Return the scores; parts are `correct` and `format`, each 0 or 1.

        A check that takes longer than its time, or more memory than there is, counts as not equal. Raises: RewardFailed
        of kind `not_started`.
        """
        readings = [_read(c) for c in completions]
        pairs = dict.fromkeys(r.verdict for r in readings if isinstance(r.verdict, _Pair))
        checked = dict(zip(pairs, self._check(list(pairs)), strict=True))
        return [
            _score(r.is_marked, checked[r.verdict] if isinstance(r.verdict, _Pair) else r.verdict) for r in readings
        ]

    def close(self) -> None:
        """End the processes."""
        if self._pool is not None:
            self._pool.close()

    def _check(self, pairs: Sequence[_Pair]) -> list[bool | None]:
        """Return which pairs are equal, None where the check was ended."""
        if not pairs:
            return []
        calls = [Completion(prompt="", completion=pair.actual, answer=pair.expected) for pair in pairs]
        try:
            if self._pool is None:
                self._pool = RewardPool(_SOURCE, file_name="math-verify", limits=self._limits)
            rewards = self._pool.score(calls, may_lose=True)
        except RewardFailed as failed:  # our own code and its packages, no fault of the person's
            raise RewardFailed(str(failed), kind="not_started", log_line=failed.log_line) from failed
        return [reward > 0 if isinstance(reward, float) else None for reward in rewards]


def _read(completion: Completion) -> _ReadResponse:
    expected_number = number(completion.answer)
    given_number = marked_number(completion.completion)
    if expected_number is not None and given_number is not None:
        return _ReadResponse(is_marked=True, verdict=given_number == expected_number)
    actual = given_answer(completion.completion, is_number=expected_number is not None)
    if actual is None:
        return _ReadResponse(is_marked=False, verdict=False)
    pair = _Pair(expected=expected_answer(completion.answer), actual=actual.text)
    is_equal = quick_equal(pair.expected, pair.actual)
    return _ReadResponse(is_marked=actual.is_marked, verdict=pair if is_equal is None else is_equal)


def _score(is_marked: bool, is_right: bool | None) -> Score:
    """Return the score; `is_right` is None where nobody could find out."""
    parts = {"correct": float(bool(is_right)), "format": float(is_marked)}
    total = CORRECT * parts["correct"] + FORMAT * parts["format"]
    return Score(total=total, parts=parts, is_right=bool(is_right), is_abandoned=is_right is None)


class Plugin:
    """How the registry opens it."""

    def open(self, source: RewardPart, limits: ScoringLimits) -> MathReward:  # noqa: ARG002
        """Return the scorer. Raises: RewardFailed if the package is missing that compares formulas."""
        if importlib.util.find_spec("math_verify") is None:
            raise RewardFailed(
                "The math reward compares formulas by the package math-verify, which is not installed where the driver "
                "runs. Install the engine's set there: requirements/install.py engine.",
                kind="not_started",
            )
        return MathReward(limits)


PLUGIN = Plugin()
