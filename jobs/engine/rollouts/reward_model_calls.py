"""The driver's side of a reward model: who is asked, and what it says of whole sequences."""

from collections.abc import Callable, Sequence

import torch

from jobs.engine.batch import make_batch
from jobs.engine.rollouts.evaluation import even_parts
from jobs.engine.workers.worker_group import WorkerGroup

PHASE = "reward"


class RewardModelCalls:
    """Asks the reward model's own worker or, where the policy's ranks hold it, each of them for a part."""

    def __init__(self, workers: WorkerGroup, *, pad_id: int, step: Callable[[], int]) -> None:
        """Take the run's workers; `step` says which one is under way."""
        self._workers, self._pad_id, self._step = workers, pad_id, step

    def __call__(self, sequences: Sequence[Sequence[int]]) -> list[float]:
        """Return the score of each sequence at its last token. Raises: WorkerFailed."""
        workers = self._workers
        ranks = workers.by_role.get("reward") or [policy.held("reward") for policy in workers.policies]
        batch = make_batch(
            [(tokens, [False] * (len(tokens) - 1) + [True]) for tokens in sequences], pad_id=self._pad_id
        )
        calls = [
            rank.call("scores", part, step=self._step(), phase=PHASE)
            for rank, part in zip(ranks, even_parts(batch, len(ranks)), strict=True)
        ]
        scores: list[float] = torch.cat(workers.gather(calls))[: len(sequences)].tolist()
        return scores
