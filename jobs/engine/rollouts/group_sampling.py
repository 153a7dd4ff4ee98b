"""Dynamic sampling: groups whose rewards are all equal are left out, and others are drawn for them, within a budget.

Source: DAPO, arXiv 2503.14476, section 3.2.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from jobs.engine.reporting.run_report import ShownSample
from jobs.engine.rollouts.reward import Score
from jobs.engine.rollouts.rollout import Rollout


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredRollout:
    """A rollout with what it earned: `scores[i]`, `samples[i]` and `rewards_B[i]` belong to its `responses[i]`.

    `rewards_B` are the shaped rewards, which is what is learned from; `shaping` says what the shaping changed.
    """

    rollout: Rollout
    scores: Sequence[Score]
    samples: Sequence[ShownSample]
    rewards_B: Tensor
    shaping: dict[str, float]

    def groups(self, index: Sequence[int], size: int) -> "ScoredRollout":
        """Return the groups of these numbers, in this order, of `size` completions each."""
        rows = [group * size + i for group in index for i in range(size)]
        return ScoredRollout(
            rollout=Rollout(
                examples=[self.rollout.examples[i] for i in rows], responses=[self.rollout.responses[i] for i in rows]
            ),
            scores=[self.scores[i] for i in rows],
            samples=[replace(self.samples[i], group=k // size, index=k % size) for k, i in enumerate(rows)],
            rewards_B=self.rewards_B[torch.tensor(rows, dtype=torch.long)],
            shaping=self.shaping,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """The groups of a step: those with variance first, then as many without as were still missing.

    `num_sampled` groups were drawn in `num_generations`, of which `num_kept` have variance and are in the step.
    """

    drawn: ScoredRollout
    num_sampled: int
    num_kept: int
    num_generations: int
    num_new_tokens: int

    @property
    def metrics(self) -> dict[str, float]:
        """What is charted of it."""
        return {
            "groups/sampled": float(self.num_sampled),
            "groups/kept": float(self.num_kept),
            "groups/generations": float(self.num_generations),
        }


def sample_groups(
    draw: Callable[[int, int], ScoredRollout], *, wanted: int, group_size: int, max_generations: int
) -> Sampled:
    """Draw groups until `wanted` of them have variance, at most `max_generations` times.

    `draw(count, first)` returns `count` further groups, the first of which is number `first` of the step. Each time as
    many are drawn as are missing, so none with variance is thrown away. What the budget leaves open is filled with
    groups that have none, the earliest first: the step keeps its size, and these teach nothing.
    """
    parts: list[ScoredRollout] = []
    useful: list[int] = []
    flat: list[int] = []
    while len(useful) < wanted and len(parts) < max_generations:
        first = len(useful) + len(flat)
        parts.append(draw(wanted - len(useful), first))
        for i, has_variance in enumerate(_has_variance(parts[-1].rewards_B, group_size)):
            (useful if has_variance else flat).append(first + i)
    # Where nothing is drawn again the step stays as it was drawn.
    chosen = [*useful, *flat[: wanted - len(useful)]] if max_generations > 1 else list(range(wanted))
    whole = _joined(parts)
    return Sampled(
        drawn=whole.groups(chosen, group_size),
        num_sampled=len(useful) + len(flat),
        num_kept=len(useful),
        num_generations=len(parts),
        num_new_tokens=whole.rollout.num_new_tokens,
    )


def _has_variance(rewards_B: Tensor, group_size: int) -> list[bool]:
    rewards_NG = rewards_B.view(-1, group_size)
    return [bool(differs) for differs in rewards_NG.amax(dim=1) > rewards_NG.amin(dim=1)]


def _joined(parts: Sequence[ScoredRollout]) -> ScoredRollout:
    """Return all generations of a step as one; the fractions of their shaping weighted by their completions."""
    total = sum(len(part.scores) for part in parts)
    names = parts[0].shaping
    return ScoredRollout(
        rollout=Rollout(
            examples=[e for part in parts for e in part.rollout.examples],
            responses=[r for part in parts for r in part.rollout.responses],
        ),
        scores=[score for part in parts for score in part.scores],
        samples=[sample for part in parts for sample in part.samples],
        rewards_B=torch.cat([part.rewards_B for part in parts]),
        shaping={name: sum(part.shaping[name] * len(part.scores) for part in parts) / total for name in names},
    )
