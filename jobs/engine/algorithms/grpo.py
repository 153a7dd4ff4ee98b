"""GRPO: the group's mean reward is the baseline, the ratio is clipped, and a KL term holds the policy near its start.

Source: DeepSeekMath, arXiv 2402.03300.
"""

from jobs.engine.algorithm import Algorithm
from jobs.engine.policy_gradient import clipped_loss, group_estimates, needs_old_logprobs

PLUGIN = Algorithm(advantages=group_estimates, needs_old_logprobs=needs_old_logprobs, policy_loss=clipped_loss)
