"""RLOO: the baseline of a completion is the mean reward of the other samples of its prompt.

Source: Back to basics, arXiv 2402.14740, section 2.3. The KL to the reference is taken off the reward, equation 1.
"""

from jobs.catalog.spec.runspec import RunSpec
from jobs.engine.advantages import leave_one_out, over_tokens
from jobs.engine.algorithm import Algorithm, Estimates
from jobs.engine.batch import Batch
from jobs.engine.policy_gradient import clipped_loss, needs_old_logprobs, rewards_less_kl


def advantages(batch: Batch, spec: RunSpec) -> Estimates:
    """Return reward - mean of the others of its group, for each completion, at each of its tokens."""
    group_size = spec.int_knob("rollout.samples_per_prompt")
    advantages_B = leave_one_out(rewards_less_kl(batch, spec), group_size=group_size)
    return Estimates(advantages_BL=over_tokens(advantages_B, batch.mask_BL))


PLUGIN = Algorithm(advantages=advantages, needs_old_logprobs=needs_old_logprobs, policy_loss=clipped_loss)
