"""Whether rounding can explain what a rollout engine's log-probabilities differ by from the trainer's."""

import math

from jobs.engine.failures.failure_cause import NonFinite, SyncGap
from jobs.engine.logprob_gap import GapSums

LARGEST_GAP = 1e-3
"""The largest difference of one token, in nats, that float32 explains: a hundred times what healthy runs show."""

_UNIT_ROUNDOFF = {"bfloat16": 2.0**-8}
_AT_ONCE = 4.0
_ENDED = "The rollout did not get the policy's weights, so the run was ended."


def largest_mean_difference(*, precision: str, num_layers: int) -> float:
    """Return up to where rounding explains the mean difference of a token's probability.

    Each layer rounds the residual stream twice and the head once more, each time by up to the unit roundoff u of the
    precision (2^-8 in bfloat16) and in either direction, in two programs: a relative error of u sqrt(2 (2 L + 1)) of
    the logits. A probability moves by p (1 - p) <= 1/4 of what its logit does, and logits that decide are around 4, so
    that the two factors cancel. In the field 0.005 is called normal and 0.01 a problem for models of 28 layers, for
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
        """Look at what was measured with the weights of the sync of step `synced_at`.

        Raises: SyncGap; NonFinite where log-probabilities are no numbers.
        """
        if math.isnan(gap.largest):
            raise NonFinite(
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
