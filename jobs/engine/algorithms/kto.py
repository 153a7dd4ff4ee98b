"""KTO: a desirable response is to gain more over a frozen reference than responses do anyway, an undesirable one less.

Source: KTO: Model Alignment as Prospect Theoretic Optimization, arXiv 2402.01306, equations 7 and 8.
"""

from torch import Tensor

from jobs.catalog.spec.runspec import RunSpec
from jobs.engine.algorithm import Algorithm, Counts, Loss, PolicyOutputs
from jobs.engine.batch import Batch
from jobs.engine.policy_gradient import token_mean
from jobs.engine.preferences import label_metrics, labeled_loss, sequence_logprobs


def implicit_rewards(batch: Batch, logprobs_BL: Tensor, spec: RunSpec) -> Tensor:
    """Return beta * log(policy / reference) of each response: [B]."""
    return spec.float_knob("pairs.beta") * _log_ratios(batch, logprobs_BL)


def policy_loss(batch: Batch, outputs: PolicyOutputs, spec: RunSpec, counts: Counts) -> Loss:
    """Return the shares of the mean loss of a response; of means over one label where the step has such responses."""
    assert batch.is_desirable_B is not None
    assert batch.reference_points_B is not None
    losses_B = labeled_loss(
        _log_ratios(batch, outputs.logprobs_BL) - batch.reference_points_B,
        batch.is_desirable_B,
        beta=spec.float_knob("pairs.beta"),
        desirable_weight=spec.float_knob("pairs.desirable_weight"),
        undesirable_weight=spec.float_knob("pairs.undesirable_weight"),
    )
    logprobs_BL = outputs.logprobs_BL.detach()
    shares = label_metrics(
        implicit_rewards(batch, logprobs_BL, spec),
        sequence_logprobs(logprobs_BL, batch.mask_BL),
        batch.is_desirable_B,
        thresholds_B=spec.float_knob("pairs.beta") * batch.reference_points_B,
        num_desirable=counts.num_desirable,
        num_undesirable=counts.num_sequences - counts.num_desirable,
    )
    loss = losses_B.sum() / counts.num_sequences
    return loss, shares | {
        "loss/labels": loss.detach(),
        "labels/reference_point": batch.reference_points_B.sum() / counts.num_sequences,
        "policy/entropy": token_mean(outputs.entropies_BL, batch, counts),
    }


def _log_ratios(batch: Batch, logprobs_BL: Tensor) -> Tensor:
    assert batch.reference_logprobs_BL is not None
    return sequence_logprobs(logprobs_BL - batch.reference_logprobs_BL, batch.mask_BL)


PLUGIN = Algorithm(policy_loss=policy_loss, rewards=implicit_rewards)
