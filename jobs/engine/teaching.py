"""The driver's side of a teacher: who is asked, and what it says of a step's batch."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from jobs.engine.batch import Batch, join_padded
from jobs.engine.workers.worker_group import WorkerGroup

if TYPE_CHECKING:
    from jobs.engine.roles.teacher import TeacherScores

PHASE = "reference"
"""In the vocabulary of phases: a frozen model gives log-probabilities to compare with."""


def taught(
    workers: WorkerGroup, batch: Batch, shares: Sequence[Sequence[Tensor]], *, step: int
) -> tuple[Batch, dict[str, float]]:
    """Return the batch with the teacher's likeliest tokens and their log-probabilities, and metrics of the teacher.

    The teacher's own worker scores the whole batch; without one each policy rank scores its share (`shares`: for each
    rank, for each update, which sequences). Metrics: teacher/entropy, and teacher/tail, the probability that the listed
    tokens leave to all others; means over counted tokens.
    """
    width = batch.tokens_BL.shape[1]
    own = workers.by_role.get("teacher", [])
    if own:
        calls = [own[0].call("scores", batch, step=step, phase=PHASE)]
        order_B = torch.arange(batch.num_sequences)
    else:
        row_indices = [torch.cat(list(updates)) for updates in shares]
        calls = [
            policy.call("teacher_scores", batch.rows(index), step=step, phase=PHASE)
            for policy, index in zip(workers.policies, row_indices, strict=True)
        ]
        order_B = torch.cat(row_indices)
    parts: list[TeacherScores] = workers.gather(calls)

    def joined(tensors: Sequence[Tensor]) -> Tensor:
        together = join_padded(tensors, width)
        whole = torch.zeros_like(together)
        whole[order_B] = together
        return whole

    logprobs_BLK = joined([part.logprobs_BLK for part in parts])
    entropies_BL = joined([part.entropies_BL for part in parts])
    of_batch = replace(
        batch, teacher_ids_BLK=joined([part.ids_BLK for part in parts]), teacher_logprobs_BLK=logprobs_BLK
    )
    tails_BL = logprobs_BLK[..., -1].exp()
    return of_batch, {
        "teacher/entropy": float(entropies_BL[batch.mask_BL].mean()),
        "teacher/tail": float(tails_BL[batch.mask_BL].mean()),
    }
