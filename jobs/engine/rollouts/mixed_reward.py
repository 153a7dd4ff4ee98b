"""The reward of a run: its parts, each times its weight, and what becomes of a completion that one cannot score."""

from collections.abc import Sequence
from typing import Literal, cast

from jobs.catalog.spec.reward_parts import part_names
from jobs.catalog.spec.runspec import RewardPart, RunSpec
from jobs.engine.rollouts.reward import Completion, Reward, RewardFailed, Score, ScoringLimits, open_reward

Policy = Literal["stop", "score", "skip"]


class MixedReward:
    """Scores by every part and adds up; with one part it is that part, times its weight."""

    def __init__(
        self,
        parts: Sequence[tuple[str, float, Reward]],
        *,
        on_failure: Policy = "stop",
        failure_score: float = 0.0,
    ) -> None:
        """Take (name, weight, scorer) of each part. `failure_score`: what a part gives that failed, under `score`."""
        self._parts, self._on_failure, self._failure_score = parts, on_failure, failure_score

    def score(self, completions: Sequence[Completion]) -> list[Score]:
        """Return the scores: `total` is the sum of weight times what the part gives.

        Of several parts, `parts` holds what each gives, without its weight; of one, what that one is made of. Whether
        an answer is right is said by the first part that knows.

        Raises: RewardFailed of the first completion that could not be scored, under the policy `stop`; of the first of
        all, under `skip`, if none could be.
        """
        outcomes = [reward.score(completions) for _, _, reward in self._parts]
        mixed = [self._mix([part[i] for part in outcomes]) for i in range(len(completions))]
        if mixed and all(score.is_skipped for score in mixed):
            raise next(each for part in outcomes for each in part if isinstance(each, RewardFailed))
        return mixed

    @property
    def notes(self) -> list[str]:
        """What the parts have to say before the first step, for the run's page."""
        return [note for _, _, reward in self._parts for note in getattr(reward, "notes", ())]

    def close(self) -> None:
        """End what the parts started."""
        for _, _, reward in self._parts:
            reward.close()

    def _mix(self, outcomes: Sequence[Score | RewardFailed]) -> Score:
        failures = [each for each in outcomes if isinstance(each, RewardFailed)]
        if failures and self._on_failure == "stop":
            raise failures[0]
        scores = [each for each in outcomes if isinstance(each, Score)]
        is_abandoned = [each.is_abandoned for each in scores if each.is_abandoned is not None]
        return Score(
            total=sum(
                weight * self._total(outcome) for (_, weight, _), outcome in zip(self._parts, outcomes, strict=True)
            ),
            parts=self._named(outcomes),
            is_right=next((each.is_right for each in scores if each.is_right is not None), None),
            is_abandoned=any(is_abandoned) if is_abandoned else None,
            failure=str(failures[0]) if failures else "",
            is_skipped=bool(failures) and self._on_failure == "skip",
        )

    def _total(self, outcome: Score | RewardFailed) -> float:
        return outcome.total if isinstance(outcome, Score) else self._failure_score

    def _named(self, outcomes: Sequence[Score | RewardFailed]) -> dict[str, float]:
        """Return the parts that were scored, by name."""
        if len(outcomes) == 1:
            return dict(outcomes[0].parts) if isinstance(outcomes[0], Score) else {}
        named = zip(self._parts, outcomes, strict=True)
        return {name: outcome.total for (name, _, _), outcome in named if isinstance(outcome, Score)}


def open_mixed(spec: RunSpec, limits: ScoringLimits, *, parts: Sequence[RewardPart] | None = None) -> MixedReward:
    """Return the scorer of a spec's reward, or of `parts` of it, by the spec's own failure policy if it has one.

    Raises: RewardFailed if a part cannot be started; those before it are closed.
    """
    chosen = spec.reward.parts if parts is None else parts
    opened: list[tuple[str, float, Reward]] = []
    try:
        for name, part in zip(part_names(chosen), chosen, strict=True):
            opened.append((name, part.weight, open_reward(part, limits)))
    except BaseException:
        for _, _, reward in opened:
            reward.close()
        raise
    if not limits.keeps_failures:
        return MixedReward(opened)
    return MixedReward(
        opened,
        on_failure=cast(Policy, spec.knob("reward.on_failure")),
        failure_score=spec.float_knob("reward.failure_score"),
    )
