"""A reward server: batches of completions are posted to an address of the user's, which answers with their scores.

Request: {"version": 1, "prompts": [...], "completions": [...], "answers": [...]}. Response: {"scores": [...]}, a finite
number for each completion. docs/examples/reward_server.py is one.
"""

import math
from collections.abc import Sequence

from jobs.catalog.spec.runspec import RewardPart
from jobs.engine.rollouts.reward import Completion, RewardFailed, Score, ScoringLimits
from jobs.engine.rollouts.scoring_client import ScoringClient


class ServerReward:
    """Ask the server, several batches at once."""

    def __init__(self, source: RewardPart, limits: ScoringLimits) -> None:
        self._batch_size = limits.service.batch_size
        self._client = ScoringClient(source.location, called="reward server", token_env=source.token_env, limits=limits)

    def score(self, completions: Sequence[Completion]) -> list[Score | RewardFailed]:
        """Return the scores; the one part is `url`. A request that fails is the failure of each of its completions.

        Raises: RewardFailed of kind `unreachable` or `wrong_type`, unless failures are kept.
        """
        size = self._batch_size
        batches = [completions[i : i + size] for i in range(0, len(completions), size)]
        answers = self._client.ask_all(
            [
                {
                    "version": 1,
                    "prompts": [c.prompt for c in batch],
                    "completions": [c.completion for c in batch],
                    "answers": [c.answer for c in batch],
                }
                for batch in batches
            ],
            lambda answer, number: scores_in(answer, count=len(batches[number])),
        )
        return [
            each
            for batch, answer in zip(batches, answers, strict=True)
            for each in ([answer] * len(batch) if isinstance(answer, RewardFailed) else map(_score, answer))
        ]

    def close(self) -> None:
        """Nothing to end."""


def scores_in(answer: object, *, count: int) -> list[float]:
    """Return the scores of a response. Raises: ValueError with what is wrong with it."""
    scores = answer.get("scores") if isinstance(answer, dict) else None
    if not isinstance(scores, list):
        raise ValueError('its response is no object with a list "scores"')
    if len(scores) != count:
        raise ValueError(f"it sent {len(scores)} scores for {count} completions")
    for number, score in enumerate(scores, 1):
        if isinstance(score, bool) or not isinstance(score, (int, float)) or not _is_finite(score):
            raise ValueError(f"score {number} of {count} is {str(score)[:40]!r}, not a finite number")
    return [float(score) for score in scores]


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number that no float can hold
        return False


def _score(value: float) -> Score:
    return Score(total=value, parts={"url": value}, is_right=None)


class Plugin:
    """How the registry opens it."""

    def open(self, source: RewardPart, limits: ScoringLimits) -> ServerReward:
        """Return the scorer; the server is first called with the first batch."""
        return ServerReward(source, limits)


PLUGIN = Plugin()
