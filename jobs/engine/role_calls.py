"""Calls of all ranks of a role at once: each scores, or learns from, its own share of a step's batch.

`shares` says for each rank, for each update, which sequences are its own. Calls are started, and waited for later, so
that roles with devices of their own work beside each other.
"""

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor

from jobs.catalog.spec.runspec import RunSpec
from jobs.engine.algorithm import Counts
from jobs.engine.batch import Batch, join_padded, share_out
from jobs.engine.micro_batches import even_out, of_units, sequences_per_sample
from jobs.engine.roles.trained_model import Update
from jobs.engine.workers.worker import Pending, Worker
from jobs.engine.workers.worker_group import WorkerGroup

Shares = Sequence[Sequence[Tensor]]


def shares_of(spec: RunSpec, batch: Batch, *, num_ranks: int, num_updates: int, step: int) -> Shares:
    """Return which sequences of the step each rank takes in each update, as even in tokens as they come."""
    unit = sequences_per_sample(spec)
    shares = share_out(
        batch.num_sequences // unit,
        num_updates=num_updates,
        num_ranks=num_ranks,
        seed=f"{spec.int_knob('train.seed')}/{step}/shares",
    )
    even = even_out(shares, batch.lengths_B.view(-1, unit).sum(dim=1))
    return [[of_units(samples, unit) for samples in updates] for updates in even]


def policy_scores(workers: WorkerGroup, method: str, batch: Batch, shares: Shares, *, step: int, phase: str) -> Tensor:
    """Return the log-probabilities by a method of the policy ranks, each scoring its own share: [B, L]."""
    started = start_scores(workers.policies, method, batch, shares, step=step, phase=phase)
    return scores_of(workers, started, batch, shares)


def reference_logprobs(workers: WorkerGroup, batch: Batch, shares: Shares, *, step: int) -> Tensor:
    """Return the frozen model's log-probabilities, by whoever holds it: [B, L]."""
    if workers.reference is None:
        return policy_scores(workers, "reference_logprobs", batch, shares, step=step, phase="reference")
    call = workers.reference.call("logprobs", batch, step=step, phase="reference")
    return cast(Tensor, workers.gather([call])[0])


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
