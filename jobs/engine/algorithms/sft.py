"""Supervised fine-tuning: cross-entropy of the given answers, averaged over the answer tokens of the whole batch."""

from jobs.catalog.spec.runspec import RunSpec
from jobs.engine.algorithm import Algorithm, Counts, Loss, PolicyOutputs
from jobs.engine.batch import Batch
from jobs.engine.policy_gradient import token_mean


def policy_loss(batch: Batch, outputs: PolicyOutputs, spec: RunSpec, counts: Counts) -> Loss:  # noqa: ARG001
    """Return the shares of -sum of log-probabilities of answer tokens / their number, and of policy/entropy."""
    loss = token_mean(-outputs.logprobs_BL, batch, counts)
    return loss, {"loss/sft": loss.detach(), "policy/entropy": token_mean(outputs.entropies_BL, batch, counts)}


PLUGIN = Algorithm(policy_loss=policy_loss)
