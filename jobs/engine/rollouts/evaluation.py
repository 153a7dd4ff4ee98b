"""Held-out evaluation: greedy answers and their reward in GRPO, cross-entropy in SFT."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from jobs.engine.batch import Batch, make_batch
from jobs.engine.data.examples import Example
from jobs.engine.data.text import TextModel
from jobs.engine.reporting.run_report import ShownSample
from jobs.engine.rollouts.mixed_reward import MixedReward
from jobs.engine.rollouts.rollout import roll_out
from jobs.engine.rollouts.scoring import score_rollout
from jobs.engine.workers.worker_group import WorkerGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Metrics of an evaluation, the samples behind it, and the one number that checkpoints are ranked by (higher is
    better).
    """

    metrics: dict[str, float]
    samples: Sequence[ShownSample]
    score: float


def evaluate_answers(
    workers: WorkerGroup, held_out: Sequence[Example], *, reward: MixedReward, text: TextModel, step: int
) -> Evaluation:
    """Answer each held-out prompt greedily and score it.

    `eval/accuracy` is there where the reward knows what a right answer is; it ranks checkpoints, else the mean reward
    does. Answers that could not be scored count in neither where the run skips them.
    """
    rollout = roll_out(workers, held_out, samples_per_prompt=1, seed=0, step=step, phase="eval", greedy=True)
    scored = score_rollout(rollout, reward=reward, text=text, samples_per_prompt=1)
    scores = [score for score in scored.scores if not score.is_skipped]
    metrics = {"eval/reward": sum(s.total for s in scores) / len(scores)}
    right = [s.is_right for s in scores if s.is_right is not None]
    if right:
        metrics["eval/accuracy"] = sum(right) / len(right)
    return Evaluation(
        metrics=metrics, samples=scored.samples, score=metrics.get("eval/accuracy", metrics["eval/reward"])
    )


def evaluate_loss(workers: WorkerGroup, held_out: Sequence[Example], *, pad_id: int, step: int) -> Evaluation:
    """Return the mean cross-entropy of the held-out answer tokens, each rank scoring a part."""
    batch = make_batch([(e.tokens, e.is_trained) for e in held_out], pad_id=pad_id)
    parts = workers.gather(
        [
            policy.call("evaluate", part, step=step, phase="eval")
            for policy, part in zip(workers.policies, even_parts(batch, len(workers.policies)), strict=True)
        ]
    )
    loss = sum(total for total, _ in parts) / max(sum(count for _, count in parts), 1)
    return Evaluation(metrics={"eval/loss": loss}, samples=[], score=-loss)


def even_parts(batch: Batch, num_parts: int) -> list[Batch]:
    """Return the batch in parts of equal size, filled up with sequences that do not count.

    In ZeRO-3 every forward pass is a collective, so all ranks must take the same number.
    """
    size = -(-batch.num_sequences // num_parts)
    parts = []
    for k in range(num_parts):
        numbers = torch.arange(k * size, (k + 1) * size)
        is_filler_B = numbers >= batch.num_sequences
        numbers[is_filler_B] = 0
        part = batch.rows(numbers)
        parts.append(replace(part, mask_BL=part.mask_BL & ~is_filler_B.unsqueeze(1)))
    return parts
