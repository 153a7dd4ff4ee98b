"""A reward of the user's own: the Python source of the spec, run in processes of its own.

They can be ended when they hang, and what the code prints cannot disturb the run. Which line raised or hangs is read
from the process, so that the cause names it.
"""

from collections.abc import Sequence
from pathlib import Path

from jobs.catalog.spec.runspec import RewardSource
from jobs.engine.rollouts.reward import Completion, Score, ScoringLimits
from jobs.engine.rollouts.reward_pool import RewardPool


class CustomReward:
    """Score batches in the pool; after a failure its processes are gone, and so is the run's batch."""

    def __init__(self, source: RewardSource, limits: ScoringLimits) -> None:
        name = Path(source.file_name).name or "reward.py"
        self._pool = RewardPool(source.source, file_name=name, limits=limits)

    def score(self, completions: Sequence[Completion]) -> list[Score]:
        """Return the scores, each completion within its time limit.

        Raises: RewardFailed of kind `raised`, `wrong_type`, `hung` or `died`.
        """
        rewards = [reward for reward in self._pool.score(completions) if reward is not None]
        return [Score(total=reward, parts={"custom": reward}, is_right=None) for reward in rewards]

    def close(self) -> None:
        """End the processes and whatever they started."""
        self._pool.close()


class Plugin:
    """How the registry opens it."""

    def open(self, source: RewardSource, limits: ScoringLimits) -> CustomReward:
        """Start a process and load the source in it."""
        return CustomReward(source, limits)


PLUGIN = Plugin()
