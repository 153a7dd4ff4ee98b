"""Supervised fine-tuning: cross-entropy of the given answers, averaged over the answer tokens of the whole batch."""

from typing import NoReturn

import torch
from torch import Tensor

from jobs.catalog.runspec import RunSpec
from jobs.engine.algorithm import Counts
from jobs.engine.batch import Batch
from jobs.engine.losses import aggregate, token_entropies, token_logprobs


class Sft:
    """loss = -sum of log-probabilities of answer tokens / their number."""

    samples = False

    def advantages(self, rewards_B: Tensor, spec: RunSpec) -> NoReturn:
        """SFT has no rewards."""
        raise NotImplementedError("SFT learns from given answers; it has no advantages.")

    def loss(self, batch: Batch, logits_BLV: Tensor, spec: RunSpec, counts: Counts) -> tuple[Tensor, dict[str, Tensor]]:  # noqa: ARG002
        """Return the loss's share and the shares of loss/sft and policy/entropy."""

        def mean(values_BL: Tensor) -> Tensor:
            return aggregate(
                values_BL,
                batch.mask_BL,
                how="token_mean",
                num_tokens=counts.num_tokens,
                num_sequences=counts.num_sequences,
            )

        loss = mean(-token_logprobs(logits_BLV, batch.tokens_BL))
        with torch.no_grad():
            entropy = mean(token_entropies(logits_BLV))
        return loss, {"loss/sft": loss.detach(), "policy/entropy": entropy}


PLUGIN = Sft()
