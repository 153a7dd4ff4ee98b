"""Distillation on given answers: the student learns a teacher's distribution at each of their tokens.

Source: Sanh et al., arXiv 1910.01108 (the loss on soft targets); GKD, arXiv 2306.13649, with lambda 0.
"""

from jobs.engine.algorithm import Algorithm
from jobs.engine.distillation import distillation_loss

PLUGIN = Algorithm(policy_loss=distillation_loss)
