"""A reward of the user's own: the Python source of the spec, run in processes of its own.

They can be ended when they hang, and what the code prints cannot disturb the run. Which line raised or hangs is read
from the process, so that the cause names it.
"""

from collections.abc import Sequence
from pathlib import Path

from jobs.catalog.spec.runspec import RewardPart
from jobs.engine.rollouts.reward import Completion, RewardFailed, Score, ScoringLimits
from jobs.engine.rollouts.reward_pool import RewardPool


class CustomReward:
    """Score batches in the pool; after a failure its processes are gone, and so is the run's batch."""

    def __init__(self, source: RewardPart, limits: ScoringLimits) -> None:
        name = Path(source.file_name).name or "reward.py"
        self._pool = RewardPool(source.source, file_name=name, limits=limits)
        self._keeps_failures = limits.keeps_failures

    def score(self, completions: Sequence[Completion]) -> list[Score | RewardFailed]:
        """Return the scores, each completion within its time limit.

        Raises: RewardFailed of kind `raised`, `wrong_type`, `hung` or `died`, unless failures are kept.
        """
        earned = self._pool.score(completions, keeps_failures=self._keeps_failures)
        return [
            each if isinstance(each, RewardFailed) else Score(total=each, parts={"custom": each}, is_right=None)
            for each in earned
            if each is not None
        ]

    def close(self) -> None:
        """End the processes and whatever they started."""
        self._pool.close()


class Plugin:
    """How the registry opens it."""

    def open(self, source: RewardPart, limits: ScoringLimits) -> CustomReward:
        """Start a process and load the source in it."""
        return CustomReward(source, limits)


PLUGIN = Plugin()
