"""Held-out evaluation: responses and their reward in algorithms that roll out, cross-entropy in SFT."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from jobs.engine.batch import Batch, make_batch
from jobs.engine.data.examples import Example
from jobs.engine.data.text import TextModel
from jobs.engine.reporting.run_report import ShownSample
from jobs.engine.rollouts.held_out import HeldOutSet
from jobs.engine.rollouts.pass_at_k import majority_votes, pass_at_k, sizes
from jobs.engine.rollouts.reward import Reward
from jobs.engine.rollouts.rollout import roll_out
from jobs.engine.rollouts.scoring import completions_of, score_rollout
from jobs.engine.workers.worker_group import WorkerGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Metrics of an evaluation, the samples behind it, and the one number that checkpoints are ranked by (higher is
    better).
    """

    metrics: dict[str, float]
    samples: Sequence[ShownSample]
    score: float


def evaluate_sets(
    workers: WorkerGroup, sets: Sequence[HeldOutSet], *, reward: Reward | None, text: TextModel, step: int
) -> Evaluation:
    """Evaluate the sets one after the other; the score and the samples are those of the first of them."""
    each = [
        evaluate_loss(workers, one.examples, pad_id=text.pad_id, step=step)
        if reward is None
        else evaluate_answers(workers, one, reward=reward, text=text, step=step)
        for one in sets
    ]
    named = [one.named(made.metrics) for one, made in zip(sets, each, strict=True)]
    return replace(each[0], metrics={name: value for metrics in named for name, value in metrics.items()})


def evaluate_answers(
    workers: WorkerGroup, held_out: HeldOutSet, *, reward: Reward, text: TextModel, step: int
) -> Evaluation:
    """Answer each held-out prompt as often as its set says, and score the responses.

    `eval/accuracy` is there where the reward knows what a right answer is; it ranks checkpoints, else the mean reward
    does. With several samples of a prompt it is their mean, and `eval/pass_at_<k>` and `eval/maj_at_<n>` come besides.
    """
    size = held_out.samples_per_prompt
    rollout = roll_out(
        workers,
        held_out.examples,
        samples_per_prompt=size,
        seed=0,
        step=step,
        phase="eval",
        temperature=held_out.temperature,
    )
    scored = score_rollout(rollout, reward=reward, text=text, samples_per_prompt=size)
    scores = scored.scores
    metrics = {"eval/reward": sum(s.total for s in scores) / len(scores)}
    right = [s.is_right for s in scores if s.is_right is not None]
    if right:
        metrics["eval/accuracy"] = sum(right) / len(right)
    if size > 1 and len(right) == len(scores):
        metrics |= pass_rates(right, size=size)
        votes = majority_votes(completions_of(rollout, text), right, reward=reward, samples_per_prompt=size)
        metrics[f"eval/maj_at_{size}"] = sum(votes) / len(votes)
    return Evaluation(
        metrics=metrics, samples=scored.samples, score=metrics.get("eval/accuracy", metrics["eval/reward"])
    )


def pass_rates(is_right: Sequence[bool], *, size: int) -> dict[str, float]:
    """Return `eval/pass_at_<k>` for k of 2, 4, 8, … and all, the mean over prompts, whose samples lie together."""
    counts = [sum(is_right[begin : begin + size]) for begin in range(0, len(is_right), size)]
    return {
        f"eval/pass_at_{k}": sum(pass_at_k(num_samples=size, num_right=c, k=k) for c in counts) / len(counts)
        for k in sizes(size)[1:]
    }


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
