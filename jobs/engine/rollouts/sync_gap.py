"""How far the rollout engine's log-probabilities are from the trainer's with the same weights, and whether rounding can
explain it.

Both compute the same function in another order, so they differ by rounding alone if the engine has the policy's
weights. Shapes: B sequences, L positions.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from jobs.engine.failures.failure_cause import SyncGap
from jobs.engine.losses import LARGEST_K3, LARGEST_LOG_RATIO

LARGEST_GAP = 1e-3
"""The largest difference of one token, in nats, that float32 explains: a hundred times what healthy runs show."""

_FAR = 0.5
_UNIT_ROUNDOFF = {"bfloat16": 2.0**-8}
_AT_ONCE = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GapSums:
    """Sums over counted tokens of how two log-probabilities of each differ; parts of a batch add up to the whole.

    `probability`: of |exp(rollout) - exp(trainer)|. `kl`: of exp(-r) - 1 + r with r = rollout - trainer, which
    estimates KL(rollout || trainer) in nats. `num_far`: tokens whose probability differs by more than one half.
    `largest`: of |r| in nats, NaN if any log-probability is none.
    """

    num_tokens: int
    probability: float
    kl: float
    num_far: int
    largest: float

    def metrics(self) -> dict[str, float]:
        """Return them by canonical name, means over the tokens."""
        count = max(self.num_tokens, 1)
        return {
            "sync/max_logprob_diff": self.largest,
            "sync/mean_probability_diff": self.probability / count,
            "sync/far_token_fraction": self.num_far / count,
            "kl/rollout": self.kl / count,
        }


def gap_sums(rollout_logprobs_BL: Tensor, trainer_logprobs_BL: Tensor, mask_BL: Tensor) -> GapSums:
    """Return the sums over the tokens that `mask_BL` counts."""
    rollout, trainer = rollout_logprobs_BL[mask_BL].float(), trainer_logprobs_BL[mask_BL].detach().float()
    difference = rollout - trainer
    apart = (rollout.exp() - trainer.exp()).abs()
    held = difference.clamp(-LARGEST_LOG_RATIO, LARGEST_LOG_RATIO)
    return GapSums(
        num_tokens=difference.numel(),
        probability=float(apart.sum()),
        kl=float((torch.exp(-held) - 1 + held).clamp(max=LARGEST_K3).sum()),
        num_far=int((apart > _FAR).sum()),
        largest=float(difference.abs().max()) if difference.numel() else 0.0,
    )


def total(parts: Iterable[GapSums]) -> GapSums:
    """Return the sums of all parts together; zeros for none."""
    parts = list(parts)
    largest = [part.largest for part in parts]
    return GapSums(
        num_tokens=sum(part.num_tokens for part in parts),
        probability=sum(part.probability for part in parts),
        kl=sum(part.kl for part in parts),
        num_far=sum(part.num_far for part in parts),
        largest=math.nan if any(map(math.isnan, largest)) else max(largest, default=0.0),
    )


def largest_mean_difference(*, precision: str, num_layers: int) -> float:
    """Return up to where rounding explains the mean difference of a token's probability.

    Each layer rounds the residual stream twice and the head once more, each time by up to the unit roundoff u of the
    precision (2^-8 in bfloat16) and in either direction, in two programs: a relative error of u sqrt(2 (2 L + 1)) of
    the logits. A probability moves by p (1 - p) <= 1/4 of what its logit does, and logits that decide are around 4, so
    that the two factors cancel. verl's guide calls 0.005 normal and 0.01 a problem for 7B models of 28 layers, for
    which this gives 0.042: it ends runs whose weights did not arrive; smaller faults are the symptoms' to tell.
    """
    return _UNIT_ROUNDOFF[precision] * math.sqrt(2 * (2 * num_layers + 1))


class SyncGuard:
    """Ends a run whose rollouts do not have the policy's weights.

    In float32 one token that is further off than rounding can explain is enough. In bfloat16 single tokens are off by
    whole nats in healthy runs, so the mean over all tokens counts: twice in a row above the limit, or once far above.
    """

    def __init__(self, *, precision: str, num_layers: int) -> None:
        self._is_exact = precision not in _UNIT_ROUNDOFF
        self._precision = precision
        self._limit = (
            math.inf if self._is_exact else largest_mean_difference(precision=precision, num_layers=num_layers)
        )
        self._was_above = False

    def check(self, gap: GapSums, *, synced_at: int) -> None:
        """Look at what was measured with the weights of the sync of step `synced_at`. Raises: SyncGap."""
        if math.isnan(gap.largest):
            raise SyncGap(
                f"Log-probabilities are not numbers after step {synced_at}: training has diverged. Lower "
                "optimizer.learning_rate."
            )
        if self._is_exact:
            if gap.largest > LARGEST_GAP:
                raise SyncGap(
                    f"vLLM and trainer differ by {gap.largest:.3g} nats on a sampled token after the weight sync of "
                    f"step {synced_at}; {self._precision} allows {LARGEST_GAP:g}. {_ENDED}"
                )
            return
        mean = gap.probability / max(gap.num_tokens, 1)
        is_above = mean > self._limit
        if mean > _AT_ONCE * self._limit or (is_above and self._was_above):
            raise SyncGap(
                f"vLLM and trainer differ by {mean:.3g} in a sampled token's probability, on average, after the weight "
                f"sync of step {synced_at}; {self._precision} explains {self._limit:.2g} for this model. {_ENDED}"
            )
        self._was_above = is_above


_ENDED = "The rollout did not get the policy's weights, so the run was ended."
