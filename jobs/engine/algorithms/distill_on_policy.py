"""On-policy distillation: the student draws completions, and learns from a teacher's distribution at each token.

Source: GKD, arXiv 2306.13649, with all data from the student (lambda 1); MiniLLM, arXiv 2306.08543.
"""

from jobs.engine.algorithm import Algorithm
from jobs.engine.distillation import distillation_loss
from jobs.engine.policy_gradient import needs_old_logprobs

PLUGIN = Algorithm(policy_loss=distillation_loss, needs_old_logprobs=needs_old_logprobs)
