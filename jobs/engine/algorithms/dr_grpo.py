"""Dr. GRPO: GRPO whose advantages are not divided by the group's deviation, nor losses by a response's length.

Both divisions are biases: the first gives more weight to prompts that are nearly always or never solved, the second
makes wrong responses cheaper the longer they are. The catalog's defaults leave them out: a plain distance to the
mean of the group, and sums over tokens divided by a constant.
Source: Understanding R1-Zero-like training, arXiv 2503.20783, section 3.
"""

from jobs.engine.algorithm import Algorithm
from jobs.engine.policy_gradient import clipped_loss, group_estimates, needs_old_logprobs

PLUGIN = Algorithm(advantages=group_estimates, needs_old_logprobs=needs_old_logprobs, policy_loss=clipped_loss)
