"""Calls of all ranks of a role at once: each scores, or learns from, its own share of a step's batch.

`shares` says for each rank, for each update, which sequences are its own. Calls are started, and waited for later, so
that roles with devices of their own work beside each other.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from jobs.engine.algorithm import Counts
from jobs.engine.batch import Batch, join_padded
from jobs.engine.roles.trained_model import Update
from jobs.engine.workers.worker import Pending, Worker
from jobs.engine.workers.worker_group import WorkerGroup

Shares = Sequence[Sequence[Tensor]]


def start_scores(
    ranks: Sequence[Worker], method: str, batch: Batch, shares: Shares, *, step: int, phase: str
) -> list[Pending]:
    """Have each rank score its share by a method that returns [B, L]."""
    return [
        rank.call(method, batch.rows(torch.cat(list(updates))), step=step, phase=phase)
        for rank, updates in zip(ranks, shares, strict=True)
    ]


def scores_of(workers: WorkerGroup, started: Sequence[Pending], batch: Batch, shares: Shares) -> Tensor:
    """Wait for the scores of all shares; return them in the order of the batch: [B, L]. Raises: WorkerFailed."""
    width = batch.tokens_BL.shape[1]
    scores_BL = torch.empty((batch.num_sequences, width))
    parts = workers.gather(started)
    scores_BL[torch.cat([torch.cat(list(updates)) for updates in shares])] = join_padded(parts, width)
    return scores_BL


def start_update(
    ranks: Sequence[Worker], batch: Batch, shares: Shares, *, learning_rate: float, step: int
) -> list[Pending]:
    """Have each rank take the step's optimizer steps on its share, with the counts of each step's whole batch."""
    wholes = [batch.rows(torch.cat([rank[u] for rank in shares])) for u in range(len(shares[0]))]
    counts = [Counts.of(whole) for whole in wholes]
    return [
        rank.call("update", [batch.rows(index) for index in updates], counts, learning_rate, step=step, phase="update")
        for rank, updates in zip(ranks, shares, strict=True)
    ]


def update_metrics(per_rank: Sequence[Sequence[Update]], *, learning_rate: float, prefix: str) -> dict[str, float]:
    """Return the metrics of a role's optimizer steps, averaged over them; `prefix` begins those that each role has."""
    of_first = per_rank[0]
    metrics = {
        f"{prefix}/learning_rate": learning_rate,
        f"{prefix}/grad_norm": sum(update.grad_norm for update in of_first) / len(of_first),
        f"{prefix}/skipped_steps": float(sum(update.is_skipped for update in of_first)),
    }
    for updates in per_rank:
        for update in updates:
            for name, value in update.shares.items():
                metrics[name] = metrics.get(name, 0.0) + value / len(of_first)
    return metrics
