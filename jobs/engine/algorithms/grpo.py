"""GRPO: the group's mean reward is the baseline, the ratio is clipped, and a KL term holds the policy near its start.

Source: DeepSeekMath, arXiv 2402.03300; the knobs open the variants of DAPO (2503.14476) and Dr. GRPO (2503.20783).
"""

from jobs.catalog.spec.runspec import RunSpec
from jobs.engine.advantages import group_advantages, over_tokens
from jobs.engine.algorithm import Algorithm, Estimates
from jobs.engine.batch import Batch
from jobs.engine.policy_gradient import clipped_loss, needs_old_logprobs, rewards_less_kl


def advantages(batch: Batch, spec: RunSpec) -> Estimates:
    """Return the group-relative advantage of each completion, at each of its tokens."""
    advantages_B = group_advantages(
        rewards_less_kl(batch, spec),
        group_size=spec.int_knob("rollout.samples_per_prompt"),
        normalize_by_std=bool(spec.knob("algorithm.normalize_by_std")),
    )
    return Estimates(advantages_BL=over_tokens(advantages_B, batch.mask_BL))


PLUGIN = Algorithm(advantages=advantages, needs_old_logprobs=needs_old_logprobs, policy_loss=clipped_loss)
