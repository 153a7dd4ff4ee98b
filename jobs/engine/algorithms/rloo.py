"""RLOO: the baseline of a completion is the mean reward of the other samples of its prompt.

Source: Back to basics, arXiv 2402.14740, section 2.3. The KL to the reference is taken off the reward, equation 1.
"""

from jobs.catalog.spec.runspec import RunSpec
from jobs.engine.advantages import group_advantages, over_tokens
from jobs.engine.algorithm import Algorithm, Estimates
from jobs.engine.batch import Batch
from jobs.engine.policy_gradient import clipped_loss, needs_old_logprobs, rewards_less_kl


def advantages(batch: Batch, spec: RunSpec) -> Estimates:
    """Return reward - mean of the others of its group, for each completion, at each of its tokens.

    With G samples a group that is G / (G - 1) of the distance to the mean of all.
    """
    group_size = spec.int_knob("rollout.samples_per_prompt")
    rewards_B = rewards_less_kl(batch, spec)
    centered_B = group_advantages(rewards_B, group_size=group_size, normalize_by_std=False)
    return Estimates(advantages_BL=over_tokens(centered_B * (group_size / (group_size - 1)), batch.mask_BL))


PLUGIN = Algorithm(advantages=advantages, needs_old_logprobs=needs_old_logprobs, policy_loss=clipped_loss)
