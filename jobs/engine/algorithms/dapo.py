"""DAPO: GRPO with a higher upper clip, a loss over tokens, groups without variance drawn again, no KL.

Its four parts are knobs whose defaults the catalog has: clip_ratio_high 0.28, loss_aggregation token_mean,
dynamic_sampling (rollouts/group_sampling.py), and overlong_buffer_tokens (rollouts/reward_shaping.py).
Source: DAPO, arXiv 2503.14476, section 3.
"""

from jobs.engine.algorithm import Algorithm
from jobs.engine.policy_gradient import clipped_loss, group_estimates, needs_old_logprobs

PLUGIN = Algorithm(advantages=group_estimates, needs_old_logprobs=needs_old_logprobs, policy_loss=clipped_loss)
