"""The user's own algorithm tried before launch: each of its formulas on a few made-up sequences. Imports torch."""

from dataclasses import replace

import torch

from jobs.box import seccomp
from jobs.catalog.algorithm import is_in
from jobs.catalog.spec.runspec import RunSpec
from jobs.engine.algorithm import Counts, PolicyOutputs
from jobs.engine.batch import Batch, make_batch
from jobs.engine.micro_batches import sequences_per_sample
from jobs.engine.own_algorithm import algorithm_of
from jobs.engine.policy_gradient import entropy_bonus

_LENGTHS = (5, 3, 4)
_LISTED = 2  # tokens that a teacher names


def try_algorithm(spec: RunSpec, *, is_boxed: bool = False) -> dict[str, object]:
    """Return the metrics that the formulas of the spec's own file tell; `is_boxed` closes this process in further.

    Raises: RunProblem naming the file's line.
    """
    if is_boxed:
        seccomp.give_up(seccomp.NETWORK, seccomp.PROCESSES, seccomp.FILES, seccomp.SYSTEM)
    own = algorithm_of(spec)
    batch = _batch(spec)
    if own.needs_old_logprobs(spec):
        batch = replace(batch, old_logprobs_BL=-torch.rand(batch.mask_BL.shape))
    if own.advantages is not None:
        estimates = own.advantages(batch, spec)
        batch = replace(batch, advantages_BL=estimates.advantages_BL, returns_BL=estimates.returns_BL)
    counts = Counts.of(batch)
    outputs = _outputs(batch, spec)
    values_BL = torch.rand(batch.mask_BL.shape).requires_grad_()
    scores_B = torch.rand(batch.num_sequences).requires_grad_()
    metrics: set[str] = set()
    if own.policy_loss is not None:
        metrics |= set(own.policy_loss(batch, outputs, spec, counts)[1])
    if own.value_loss is not None:
        metrics |= set(own.value_loss(batch, values_BL, spec, counts)[1])
    if own.score_loss is not None:
        metrics |= set(own.score_loss(batch, scores_B, spec, counts)[1])
    if own.rewards is not None:
        judged = outputs.logprobs_BL if own.score_loss is None else scores_B
        own.rewards(batch, judged.detach(), spec)
    return {"metrics": sorted(metrics)}


def _batch(spec: RunSpec) -> Batch:
    """Return two prompts' sequences (one pair where it learns from pairs) with all that a run of the spec would add."""
    size = spec.int_knob("rollout.samples_per_prompt") if is_in(spec.algorithm, "rl") else sequences_per_sample(spec)
    lengths = [_LENGTHS[i % len(_LENGTHS)] for i in range(2 * size)]
    batch = make_batch([(range(n), [False] + [True] * (n - 1)) for n in lengths], pad_id=0)
    shape = batch.mask_BL.shape

    def logprobs() -> torch.Tensor:
        return -torch.rand(shape)

    if is_in(spec.algorithm, "rl"):
        rewards_B = torch.arange(len(lengths), dtype=torch.float32) % 3
        batch = replace(batch, rewards_B=rewards_B, rollout_logprobs_BL=torch.where(batch.mask_BL, logprobs(), 0.0))
    if is_in(spec.algorithm, "labeled"):
        are_desirable_B = torch.arange(len(lengths)) % 2 == 0
        batch = replace(batch, is_desirable_B=are_desirable_B, reference_points_B=torch.full((len(lengths),), 0.25))
    if spec.needs("reference"):
        batch = replace(batch, reference_logprobs_BL=logprobs())
    if spec.needs("critic"):
        batch = replace(batch, values_BL=torch.where(batch.mask_BL, torch.rand(shape), 0.0))
    if spec.needs("teacher"):
        ids_BLK = torch.zeros((*shape, _LISTED), dtype=torch.int32)
        batch = replace(batch, teacher_ids_BLK=ids_BLK, teacher_logprobs_BLK=-2.0 - torch.rand((*shape, _LISTED + 1)))
    return batch


def _outputs(batch: Batch, spec: RunSpec) -> PolicyOutputs:
    """Return what a forward pass would say of the batch."""
    shape = batch.mask_BL.shape
    entropies_BL = torch.rand(shape).requires_grad_(entropy_bonus(spec) > 0)
    outputs = PolicyOutputs(logprobs_BL=(-torch.rand(shape)).requires_grad_(), entropies_BL=entropies_BL)
    if batch.teacher_ids_BLK is None:
        return outputs
    listed_BLK = (-1.0 - torch.rand((*shape, _LISTED))).requires_grad_()
    return replace(outputs, listed_logprobs_BLK=listed_BLK, overlaps_BL=torch.ones(shape))
