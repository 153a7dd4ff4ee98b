"""GRPO: the group's mean reward is the baseline, the ratio is clipped, and a KL term holds the policy near its start.

Source: DeepSeekMath, arXiv 2402.03300; the knobs open the variants of DAPO (2503.14476) and Dr. GRPO (2503.20783).
"""

import torch
from torch import Tensor

from jobs.catalog.runspec import RunSpec
from jobs.engine.advantages import group_advantages
from jobs.engine.algorithm import Counts
from jobs.engine.batch import Batch
from jobs.engine.losses import aggregate, clipped_policy_loss, kl_estimate, token_entropies, token_logprobs


class Grpo:
    """loss = clipped policy loss + kl_coefficient * KL to the reference."""

    samples = True

    def advantages(self, rewards_B: Tensor, spec: RunSpec) -> Tensor:
        """Return the group-relative advantages: float32 [B]."""
        return group_advantages(
            rewards_B,
            group_size=spec.int_knob("rollout.samples_per_prompt"),
            normalize_by_std=bool(spec.knob("algorithm.normalize_by_std")),
        )

    def loss(self, batch: Batch, logits_BLV: Tensor, spec: RunSpec, counts: Counts) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the loss's share and the shares of policy/entropy, clip_fraction, ratio_mean, kl/reference,
        loss/policy.
        """
        assert batch.old_logprobs_BL is not None
        assert batch.advantages_B is not None
        temperature = spec.float_knob("rollout.temperature")
        logprobs_BL = token_logprobs(logits_BLV, batch.tokens_BL, temperature=temperature)
        loss_BL, is_cut_BL, ratio_BL = clipped_policy_loss(
            logprobs_BL,
            batch.old_logprobs_BL,
            batch.advantages_B,
            clip_low=spec.float_knob("algorithm.clip_ratio_low"),
            clip_high=spec.float_knob("algorithm.clip_ratio_high"),
        )

        def mean(values_BL: Tensor) -> Tensor:
            return aggregate(
                values_BL.detach().float(),
                batch.mask_BL,
                how="token_mean",
                num_tokens=counts.num_tokens,
                num_sequences=counts.num_sequences,
            )

        with torch.no_grad():
            entropy_BL = token_entropies(logits_BLV, temperature=temperature)
        shares = {
            "policy/entropy": mean(entropy_BL),
            "policy/clip_fraction": mean(is_cut_BL),
            "policy/ratio_mean": mean(ratio_BL),
        }
        if batch.reference_logprobs_BL is not None:
            kl_BL = kl_estimate(logprobs_BL, batch.reference_logprobs_BL, estimator=spec.knob("algorithm.kl_estimator"))
            loss_BL = loss_BL + spec.float_knob("algorithm.kl_coefficient") * kl_BL
            shares["kl/reference"] = mean(kl_BL)
        loss = aggregate(
            loss_BL,
            batch.mask_BL,
            how=spec.knob("algorithm.loss_aggregation"),
            num_tokens=counts.num_tokens,
            num_sequences=counts.num_sequences,
        )
        shares["loss/policy"] = loss.detach()
        return loss, shares


PLUGIN = Grpo()
