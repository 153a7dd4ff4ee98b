"""DPO: the log-ratio to a frozen reference is the reward, and the chosen response of a pair is to have the higher one.

Source: Direct Preference Optimization, arXiv 2305.18290; the knobs open IPO (2310.12036), cDPO and SimPO (2405.14734).
"""

from torch import Tensor

from jobs.catalog.spec.runspec import RunSpec
from jobs.engine.algorithm import Algorithm, Counts, Loss, PolicyOutputs
from jobs.engine.batch import Batch
from jobs.engine.policy_gradient import token_mean
from jobs.engine.preferences import pair_metrics, preference_loss, sequence_logprobs, sides


def implicit_rewards(batch: Batch, logprobs_BL: Tensor, spec: RunSpec) -> Tensor:
    """Return beta * log(policy / reference) of each response; without a reference beta * its log-probability: [B]."""
    return spec.float_knob("pairs.beta") * _log_ratios(batch, logprobs_BL, spec)


def policy_loss(batch: Batch, outputs: PolicyOutputs, spec: RunSpec, counts: Counts) -> Loss:
    """Return the shares of the mean loss of a pair, plus nll_coefficient * cross-entropy of chosen responses.

    The cross-entropy is the mean over responses of the mean over a response's tokens; loss/pairs is without it.
    """
    num_pairs = counts.num_sequences / 2
    beta = spec.float_knob("pairs.beta")
    chosen_P, rejected_P = sides(_log_ratios(batch, outputs.logprobs_BL, spec))
    losses_P = preference_loss(
        chosen_P - rejected_P,
        kind="ipo" if spec.knob("pairs.ipo") else "sigmoid",
        beta=beta,
        label_smoothing=spec.float_knob("pairs.label_smoothing"),
        target_margin=spec.float_knob("pairs.target_margin"),
    )
    chosen_logprobs_P, rejected_logprobs_P = sides(sequence_logprobs(outputs.logprobs_BL, batch.mask_BL).detach())
    means = pair_metrics(implicit_rewards(batch, outputs.logprobs_BL.detach(), spec)) | {
        "pairs/chosen_logprob": chosen_logprobs_P,
        "pairs/rejected_logprob": rejected_logprobs_P,
    }
    shares = {name: values_P.sum() / num_pairs for name, values_P in means.items()}
    preference = losses_P.sum() / num_pairs
    loss = preference
    coefficient = spec.float_knob("pairs.nll_coefficient")
    if coefficient:
        mean_logprobs_P, _ = sides(sequence_logprobs(outputs.logprobs_BL, batch.mask_BL, is_averaged=True))
        nll = -mean_logprobs_P.sum() / num_pairs
        loss = loss + coefficient * nll
        shares["pairs/chosen_nll"] = nll.detach()
    entropy = token_mean(outputs.entropies_BL, batch, counts)
    return loss, shares | {"loss/pairs": preference.detach(), "policy/entropy": entropy}


def _log_ratios(batch: Batch, logprobs_BL: Tensor, spec: RunSpec) -> Tensor:
    ratios_BL = logprobs_BL
    if batch.reference_logprobs_BL is not None:
        ratios_BL = logprobs_BL - batch.reference_logprobs_BL
    return sequence_logprobs(ratios_BL, batch.mask_BL, is_averaged=bool(spec.knob("pairs.length_normalized")))


PLUGIN = Algorithm(policy_loss=policy_loss, rewards=implicit_rewards)
