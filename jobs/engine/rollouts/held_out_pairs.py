"""Held-out evaluation of what learns from pairs: is the chosen response worth more than the rejected one."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from jobs.catalog.spec.runspec import RunSpec
from jobs.engine.algorithm import Algorithm, Counts, PolicyOutputs
from jobs.engine.batch import Batch, join_padded, make_batch
from jobs.engine.data.examples import Example, sides_of
from jobs.engine.micro_batches import sequences_per_sample
from jobs.engine.reporting.run_report import ShownSample
from jobs.engine.rollouts.evaluation import Evaluation, even_parts, joined
from jobs.engine.rollouts.held_out import HeldOutSet
from jobs.engine.workers.worker import Worker
from jobs.engine.workers.worker_group import WorkerGroup

_TOLD_AS = {
    "loss/pairs": "eval/pairs_loss",
    "pairs/accuracy": "eval/pairs_accuracy",
    "pairs/margin": "eval/pairs_margin",
}
SIDES = ("chosen", "rejected")


def batch_of(examples: Sequence[Example], *, pad_id: int) -> Batch:
    """Return the examples as a batch; of a pair the chosen response first, and the rejected one right after it."""
    sides = [side for example in examples for side in sides_of(example)]
    batch = make_batch([(side.tokens, side.is_trained) for side in sides], pad_id=pad_id)
    if not any(side.margin for side in sides):
        return batch
    return replace(batch, margins_B=torch.tensor([side.margin for side in sides], dtype=torch.float32))


class HeldOutPairs:
    """The held-out pairs of a run. All ranks of the policy are asked, each for a part."""

    def __init__(
        self, spec: RunSpec, algorithm: Algorithm, workers: WorkerGroup, examples: Sequence[Example], *, pad_id: int
    ) -> None:
        self._spec, self._algorithm, self._workers, self._examples = spec, algorithm, workers, examples
        self._batch = batch_of(examples, pad_id=pad_id)

    def compare_with_reference(self, *, step: int) -> None:
        """Ask the frozen reference for its log-probabilities, which stay the same."""
        apart = self._workers.reference
        scored_BL = (
            self._scored("logprobs", [apart], step=step)
            if apart is not None
            else self._scored("reference_logprobs", self._workers.policies, step=step)
        )
        self._batch = replace(self._batch, reference_logprobs_BL=scored_BL)

    def evaluate(self, *, step: int) -> Evaluation:
        """Return loss and accuracy of the pairs, and both responses of each with their rewards. Ranked by accuracy."""
        algorithm, batch = self._algorithm, self._batch
        assert algorithm.rewards is not None
        counts = Counts(num_tokens=batch.num_trained_tokens, num_sequences=batch.num_sequences)
        if algorithm.score_loss is not None:
            said = torch.cat(self._parts("scores", self._workers.policies, step=step))[: batch.num_sequences]
            _, metrics = algorithm.score_loss(batch, said, self._spec, counts)
        else:
            assert algorithm.policy_loss is not None
            said = self._scored("logprobs", self._workers.policies, step=step)
            outputs = PolicyOutputs(logprobs_BL=said, entropies_BL=torch.zeros_like(said))
            _, metrics = algorithm.policy_loss(batch, outputs, self._spec, counts)
        rewards = algorithm.rewards(batch, said, self._spec).tolist()
        measured = {name: float(metrics[key]) for key, name in _TOLD_AS.items()}
        return Evaluation(metrics=measured, samples=self._samples(rewards), score=measured["eval/pairs_accuracy"])

    def _scored(self, method: str, workers: Sequence[Worker], *, step: int) -> Tensor:
        scored_BL = join_padded(self._parts(method, workers, step=step), self._batch.tokens_BL.shape[1])
        return scored_BL[: self._batch.num_sequences]

    def _parts(self, method: str, workers: Sequence[Worker], *, step: int) -> list[Tensor]:
        """Return what each worker says of its part of the pairs, in order; the last has fillers behind."""
        parts = even_parts(self._batch, len(workers), unit=sequences_per_sample(self._spec))
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
                rewards={SIDES[side]: reward},
                tokens=sum(response.is_trained),
            )
            for (group, side, response), reward in zip(responses, rewards, strict=True)
        ]


class PairSets:
    """The held-out sets of a run that learns from pairs; the frozen reference is asked once for each of them."""

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
