"""The rollout of a training step: prompts are taken, completions drawn, scored and shaped, group by group."""

from collections.abc import Callable, Sequence

import torch

from jobs.catalog.algorithm import is_in
from jobs.catalog.spec.runspec import RunSpec
from jobs.engine.data.examples import Example
from jobs.engine.data.text import TextModel
from jobs.engine.reporting.run_report import RunReport
from jobs.engine.roles.weights import Turns
from jobs.engine.rollouts.group_sampling import Sampled, ScoredRollout, sample_groups
from jobs.engine.rollouts.mixed_reward import MixedReward
from jobs.engine.rollouts.reward_moments import RewardMoments
from jobs.engine.rollouts.reward_report import fill_skipped
from jobs.engine.rollouts.reward_shaping import Shaping
from jobs.engine.rollouts.rollout import Rollout, roll_out
from jobs.engine.rollouts.scoring import score_rollout
from jobs.engine.workers.worker_group import WorkerGroup
from profiling.profile import mark


class StepRollout:
    """Draws and scores the groups of a step; others for those without variance where the run does so.

    `take` returns the next examples of the data. `seconds` were spent drawing in the step under way, over all of its
    generations. `moments` are those of all rewards so far where the run normalizes them.
    """

    def __init__(
        self,
        *,
        workers: WorkerGroup,
        turns: Turns,
        report: RunReport,
        text: TextModel,
        reward: MixedReward | None,
        take: Callable[[int], Sequence[Example]],
        moments: RewardMoments,
    ) -> None:
        self._workers, self._turns, self._report = workers, turns, report
        self._text, self._reward, self._take = text, reward, take
        self.seconds, self.moments = 0.0, moments

    def draw(self, spec: RunSpec, *, step: int) -> Sampled:
        """Return the groups of a step, after which it is the policy's turn. Raises: RunStopped, WorkerFailed."""
        wanted = spec.int_knob("rollout.prompts_per_step")
        max_generations = max_generations_of(spec)
        self.seconds = 0.0

        def draw(count: int, first: int) -> ScoredRollout:
            rollout = self._roll_out(spec, count, first, step=step)
            if max_generations == 1:  # while the reward works the ranks load their states
                self._turns.of_policy(step=step, is_renewed=True)
            with mark("reward", step=step):
                return self._score(spec, rollout)

        sampled = sample_groups(
            draw,
            wanted=wanted,
            group_size=spec.int_knob("rollout.samples_per_prompt"),
            max_generations=max_generations,
        )
        self._turns.of_policy(step=step, is_renewed=True)
        if max_generations > 1 and sampled.num_kept < wanted:
            text = (
                f"Step {step} learns from {sampled.num_kept} of {wanted} groups: of {sampled.num_sampled} that were "
                f"drawn in {sampled.num_generations} generations no more have rewards that differ."
            )
            self._report.note(text, step=step)
        self._report.samples(
            sampled.drawn.samples,
            step=step,
            is_eval=False,
            shown=spec.int_knob("logging.samples_per_step"),
            text=self._text,
            num_logprobs=spec.int_knob("logging.token_logprobs"),
        )
        return sampled

    def _roll_out(self, spec: RunSpec, count: int, first: int, *, step: int) -> Rollout:
        """Draw the groups of `count` further prompts, the first of which is number `first` of the step."""
        with mark("data_wait", step=step):
            examples = self._take(count)
        self._turns.of_engines(step=step)
        with mark("rollout", step=step) as rollout_mark:
            rollout = roll_out(
                self._workers,
                examples,
                samples_per_prompt=spec.int_knob("rollout.samples_per_prompt"),
                seed=spec.int_knob("train.seed"),
                step=step,
                first=first,
            )
        self.seconds += rollout_mark.seconds
        return rollout

    def _score(self, spec: RunSpec, rollout: Rollout) -> ScoredRollout:
        """Score the completions, and shape what they earned."""
        assert self._reward is not None
        group_size = spec.int_knob("rollout.samples_per_prompt")
        scored = score_rollout(rollout, reward=self._reward, text=self._text, samples_per_prompt=group_size)
        rewards_B = torch.tensor([score.total for score in scored.scores], dtype=torch.float32)
        if spec.knob("reward.normalize"):
            self.moments += rewards_B[torch.tensor([not score.is_skipped for score in scored.scores])]
            rewards_B = self.moments.normalized(rewards_B)
        else:
            self.moments = RewardMoments()  # those of an attempt before that did
        rewards_B, shaping = Shaping.of(spec).shaped(
            rewards_B,
            rollout.lengths,
            torch.tensor([response.is_truncated for response in rollout.responses]),
        )
        rewards_B = fill_skipped(rewards_B, scored.scores, group_size=group_size)
        return ScoredRollout(
            rollout=rollout, scores=scored.scores, samples=scored.samples, rewards_B=rewards_B, shaping=shaping
        )


def max_generations_of(spec: RunSpec) -> int:
    """Return how often groups may be drawn in a step."""
    if is_in(spec.algorithm, "grouped") and spec.knob("algorithm.dynamic_sampling"):
        return spec.int_knob("algorithm.dynamic_sampling_generations")
    return 1
