"""A model that learns what a response is worth: a scalar head on a language model, in the place of a policy.

Runs inside an actor (actor.py), which imports it by name.
"""

import contextlib

import torch
from torch import Tensor

from jobs.engine.algorithm import Counts, Loss
from jobs.engine.batch import Batch
from jobs.engine.roles.policy import Policy
from jobs.engine.roles.value_head import load_score_model, score_texts, scored

_FIELD = "model.id"


class RewardModel(Policy):
    """A rank of a reward model in training. What it leaves loads as transformers' class for sequence classification."""

    def _load_in(self, sharding: contextlib.AbstractContextManager[None] | None) -> torch.nn.Module:
        model: torch.nn.Module = load_score_model(
            self._folder,
            precision=str(self._spec.knob("memory.precision")),
            is_packed=self._cut.is_packed,
            field=_FIELD,
            sharding=sharding,
        )
        return model

    def _loss(self, micro: Batch, counts: Counts) -> Loss:
        assert self._algorithm.score_loss is not None
        scores_B = self._engine(micro.tokens_BL, micro.mask_BL, micro.lengths_B)
        return self._algorithm.score_loss(micro, scores_B, self._spec, counts)

    def scores(self, batch: Batch) -> Tensor:
        """Return the score of each sequence with the weights of now, on the CPU: [B]."""
        if self._stage < 3:
            return scored(self._engine.module, batch, self._cut.rows(batch.lengths_B), self._device.torch_device())
        return scored(self._engine, batch, self._micro_batches(batch), self._device.torch_device())

    def text_files(self) -> dict[str, bytes]:
        """See Policy."""
        return score_texts(self._folder, self._engine.module)
