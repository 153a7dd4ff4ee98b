"""The driver's side of a step that learns labels: what its responses are compared with (jobs/engine/mismatches.py)."""

from collections.abc import Sequence
from dataclasses import replace

from jobs.catalog.spec.runspec import RunSpec
from jobs.engine.batch import Batch
from jobs.engine.data.examples import Example
from jobs.engine.mismatches import with_reference_point
from jobs.engine.role_calls import Shares, policy_scores, reference_logprobs
from jobs.engine.rollouts.held_out_pairs import mismatched_batch
from jobs.engine.workers.worker_group import WorkerGroup
from profiling.profile import mark


def compared(
    spec: RunSpec,
    workers: WorkerGroup,
    batch: Batch,
    examples: Sequence[Example],
    shares: Shares,
    *,
    step: int,
    pad_id: int,
) -> Batch:
    """Return the batch of these examples with the reference point of the step, by the policy's weights of now."""
    others = mismatched_batch(spec, examples, pad_id=pad_id)
    with mark("reference", step=step):
        others = replace(others, reference_logprobs_BL=reference_logprobs(workers, others, shares, step=step))
    with mark("old_logprobs", step=step):
        logprobs_BL = policy_scores(workers, "logprobs", others, shares, step=step, phase="old_logprobs")
    return with_reference_point(batch, others, logprobs_BL)
