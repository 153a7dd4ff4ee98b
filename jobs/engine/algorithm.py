"""The contract of an algorithm, and the lookup of one in the folder `algorithms/`.

An algorithm is pure functions on tensors. It never sees logits: how log-probabilities and entropies come of them is the
business of the role that has them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from torch import Tensor

from jobs.catalog.spec.runspec import RunSpec
from jobs.engine.batch import Batch
from profiling import plugins


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What the whole batch of one optimizer step holds, over all micro-batches and ranks."""

    num_tokens: int
    num_sequences: int
    num_desirable: int = 0

    @classmethod
    def of(cls, batch: Batch) -> "Counts":
        """Return the counts of a batch that is a whole optimizer step."""
        labels_B = batch.is_desirable_B
        return cls(
            num_tokens=batch.num_trained_tokens,
            num_sequences=batch.num_sequences,
            num_desirable=0 if labels_B is None else int(labels_B.sum()),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyOutputs:
    """What the policy's forward pass says of a micro-batch, at position l of token l: [B, L] in nats, float32.

    Gradients flow through the log-probabilities, and through the entropies where the run has a bonus for them. With a
    teacher also the log-probabilities of the tokens that it lists, [B, L, K], with gradients, and which share of these
    is among the K likeliest here, [B, L].
    """

    logprobs_BL: Tensor
    entropies_BL: Tensor
    listed_logprobs_BLK: Tensor | None = None
    overlaps_BL: Tensor | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimates:
    """What a rollout says of each token: how much better than expected it was, and what a critic should expect.

    Both are float32 [B, L] and 0 outside of the batch's mask; no returns without a critic.
    """

    advantages_BL: Tensor
    returns_BL: Tensor | None = None


Loss = tuple[Tensor, dict[str, Tensor]]
"""A micro-batch's share of the loss (a scalar), and its share of each metric's mean by canonical name. Shares of all
micro-batches and ranks add up to the whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Algorithm:
    """An algorithm: the formulas that make it. Its families and its knobs are in the catalog.

    `advantages` gets the whole rollout of a step: rewards, log-probabilities and, with a critic, values. None where
    nothing is rolled out, and where a teacher alone says what is better. `needs_old_logprobs` says whether a pass of
    the policy over the rollout comes before that; without it a batch has no old log-probabilities, and the update's own
    are the old ones. `policy_loss` gets a micro-batch with all of them. `value_loss` gets the critic's values of now,
    [B, L]; None without a critic. `score_loss` stands in the place of `policy_loss` where what is trained is no policy
    but says one number of each sequence (family `scalar`): it gets these scores of now, [B]. `rewards` says what
    responses that were not rolled out are worth, [B], by the log-probabilities or the scores of now; None where none is
    compared with another.
    """

    policy_loss: Callable[[Batch, PolicyOutputs, RunSpec, Counts], Loss] | None = None
    advantages: Callable[[Batch, RunSpec], Estimates] | None = None
    needs_old_logprobs: Callable[[RunSpec], bool] = lambda _: True
    value_loss: Callable[[Batch, Tensor, RunSpec, Counts], Loss] | None = None
    score_loss: Callable[[Batch, Tensor, RunSpec, Counts], Loss] | None = None
    rewards: Callable[[Batch, Tensor, RunSpec], Tensor] | None = None


def load_algorithm(name: str) -> Algorithm:
    """Return the algorithm of that name. Raises: UnknownPlugin, naming those there are."""
    return cast(Algorithm, plugins.load("jobs.engine.algorithms", name))
