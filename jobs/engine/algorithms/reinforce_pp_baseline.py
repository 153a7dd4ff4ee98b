"""REINFORCE++ with baseline: the distance to the group's mean reward, whitened over the whole batch.

Source: REINFORCE++, arXiv 2501.03262, section 3.2.
"""

from jobs.catalog.spec.runspec import RunSpec
from jobs.engine.advantages import group_advantages, over_tokens, whiten
from jobs.engine.algorithm import Algorithm, Estimates
from jobs.engine.batch import Batch
from jobs.engine.policy_gradient import clipped_loss, needs_old_logprobs, rewards_less_kl


def advantages(batch: Batch, spec: RunSpec) -> Estimates:
    """Return the whitened distance to the group's mean of each completion, at each of its tokens."""
    group_size = spec.int_knob("rollout.samples_per_prompt")
    centered_B = group_advantages(rewards_less_kl(batch, spec), group_size=group_size, normalize_by_std=False)
    by_std = bool(spec.knob("algorithm.whiten_by_std"))
    return Estimates(advantages_BL=whiten(over_tokens(centered_B, batch.mask_BL), batch.mask_BL, by_std=by_std))


PLUGIN = Algorithm(advantages=advantages, needs_old_logprobs=needs_old_logprobs, policy_loss=clipped_loss)
