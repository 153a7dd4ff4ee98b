"""Held-out evaluation of what learns from preferences: is the chosen response of a pair worth more than the rejected
one, or a labeled response on the right side of the reference point.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from jobs.catalog.algorithm import is_in
from jobs.catalog.spec.runspec import RunSpec
from jobs.engine.algorithm import Algorithm, Counts, PolicyOutputs
from jobs.engine.batch import Batch, join_padded, make_batch
from jobs.engine.data.examples import Example, sides_of, token_limit
from jobs.engine.micro_batches import sequences_per_sample
from jobs.engine.mismatches import mismatched, with_reference_point
from jobs.engine.reporting.run_report import ShownSample
from jobs.engine.rollouts.evaluation import Evaluation, even_parts, joined
from jobs.engine.rollouts.held_out import HeldOutSet
from jobs.engine.workers.worker import Worker
from jobs.engine.workers.worker_group import WorkerGroup

_TOLD_AS = {
    "loss/pairs": "eval/pairs_loss",
    "pairs/accuracy": "eval/pairs_accuracy",
    "pairs/margin": "eval/pairs_margin",
    "loss/labels": "eval/labels_loss",
    "labels/accuracy": "eval/labels_accuracy",
    "labels/margin": "eval/labels_margin",
}
_RANKED_BY = ("eval/pairs_accuracy", "eval/labels_accuracy")
SIDES = ("chosen", "rejected")
LABELS = ("undesirable", "desirable")


def batch_of(examples: Sequence[Example], *, pad_id: int) -> Batch:
    """Return the examples as a batch; of a pair the chosen response first, and the rejected one right after it."""
    sides = [side for example in examples for side in sides_of(example)]
    batch = make_batch([(side.tokens, side.is_trained) for side in sides], pad_id=pad_id)
    if any(side.margin for side in sides):
        batch = replace(batch, margins_B=torch.tensor([side.margin for side in sides], dtype=torch.float32))
    if any(example.is_desirable is None for example in examples):
        return batch
    return replace(batch, is_desirable_B=torch.tensor([bool(example.is_desirable) for example in examples]))


def mismatched_batch(spec: RunSpec, examples: Sequence[Example], *, pad_id: int) -> Batch:
    """Return the batch that the reference point of these examples is estimated from (jobs/engine/mismatches.py)."""
    return batch_of(mismatched(examples, limit=token_limit(spec)), pad_id=pad_id)


class HeldOutPairs:
    """The held-out pairs, or labeled responses, of a run. All ranks of the policy are asked, each for a part."""

    def __init__(
        self, spec: RunSpec, algorithm: Algorithm, workers: WorkerGroup, examples: Sequence[Example], *, pad_id: int
    ) -> None:
        self._spec, self._algorithm, self._workers, self._examples = spec, algorithm, workers, examples
        self._batch = batch_of(examples, pad_id=pad_id)
        self._others = mismatched_batch(spec, examples, pad_id=pad_id) if is_in(spec.algorithm, "labeled") else None

    def compare_with_reference(self, *, step: int) -> None:
        """Ask the frozen reference for its log-probabilities, which stay the same."""
        self._batch = self._compared(self._batch, step=step)
        if self._others is not None:
            self._others = self._compared(self._others, step=step)

    def _compared(self, batch: Batch, *, step: int) -> Batch:
        apart = self._workers.reference
        scored_BL = (
            self._scored(batch, "logprobs", [apart], step=step)
            if apart is not None
            else self._scored(batch, "reference_logprobs", self._workers.policies, step=step)
        )
        return replace(batch, reference_logprobs_BL=scored_BL)

    def evaluate(self, *, step: int) -> Evaluation:
        """Return loss and accuracy, and each response with its reward. Ranked by accuracy."""
        algorithm, batch = self._algorithm, self._batch
        assert algorithm.rewards is not None
        if self._others is not None:
            others_BL = self._scored(self._others, "logprobs", self._workers.policies, step=step)
            batch = with_reference_point(batch, self._others, others_BL)
        if algorithm.score_loss is not None:
            said = torch.cat(self._parts(batch, "scores", self._workers.policies, step=step))[: batch.num_sequences]
            _, metrics = algorithm.score_loss(batch, said, self._spec, Counts.of(batch))
        else:
            assert algorithm.policy_loss is not None
            said = self._scored(batch, "logprobs", self._workers.policies, step=step)
            outputs = PolicyOutputs(logprobs_BL=said, entropies_BL=torch.zeros_like(said))
            _, metrics = algorithm.policy_loss(batch, outputs, self._spec, Counts.of(batch))
        rewards = algorithm.rewards(batch, said, self._spec).tolist()
        measured = {name: float(metrics[key]) for key, name in _TOLD_AS.items() if key in metrics}
        score = next(measured[name] for name in _RANKED_BY if name in measured)
        return Evaluation(metrics=measured, samples=self._samples(rewards), score=score)

    def _scored(self, batch: Batch, method: str, workers: Sequence[Worker], *, step: int) -> Tensor:
        scored_BL = join_padded(self._parts(batch, method, workers, step=step), batch.tokens_BL.shape[1])
        return scored_BL[: batch.num_sequences]

    def _parts(self, batch: Batch, method: str, workers: Sequence[Worker], *, step: int) -> list[Tensor]:
        """Return what each worker says of its part of a batch, in order; the last has fillers behind."""
        parts = even_parts(batch, len(workers), unit=sequences_per_sample(self._spec))
        calls = [w.call(method, part, step=step, phase="eval") for w, part in zip(workers, parts, strict=True)]
        return self._workers.gather(calls)

    def _samples(self, rewards: Sequence[float]) -> list[ShownSample]:
        responses = [
            (group, side, response)
            for group, example in enumerate(self._examples)
            for side, response in enumerate(sides_of(example))
        ]
        return [
            ShownSample(
                group=group,
                index=side,
                prompt=response.prompt,
                completion=response.answer,
                expected="",
                reward=reward,
                rewards={_side_name(response, side): reward},
                tokens=sum(response.is_trained),
            )
            for (group, side, response), reward in zip(responses, rewards, strict=True)
        ]


def _side_name(response: Example, side: int) -> str:
    return SIDES[side] if response.is_desirable is None else LABELS[response.is_desirable]


class PairSets:
    """The held-out sets of a run that learns from preferences; the frozen reference is asked once for each of them."""

    def __init__(self, spec: RunSpec, algorithm: Algorithm, workers: WorkerGroup, *, pad_id: int) -> None:
        self._spec, self._algorithm, self._workers, self._pad_id = spec, algorithm, workers, pad_id
        self._by_name: dict[str, HeldOutPairs] = {}

    def evaluate(self, sets: Sequence[HeldOutSet], *, step: int) -> Evaluation:
        """Return what the model of now says of the pairs of these sets."""
        return joined(sets, [self._pairs_of(each, step=step).evaluate(step=step) for each in sets])

    def _pairs_of(self, held_out: HeldOutSet, *, step: int) -> HeldOutPairs:
        if held_out.name not in self._by_name:
            pairs = HeldOutPairs(self._spec, self._algorithm, self._workers, held_out.examples, pad_id=self._pad_id)
            if self._spec.needs("reference"):
                pairs.compare_with_reference(step=step)
            self._by_name[held_out.name] = pairs
        return self._by_name[held_out.name]
