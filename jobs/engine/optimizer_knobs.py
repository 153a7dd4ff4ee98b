"""The knobs of each trained role's optimizer, by what they are: each role learns by its own."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerKnobs:
    """Names of knobs. `optimizer.decay_steps` and what is skipped hold for all roles."""

    learning_rate: str
    schedule: str
    warmup_steps: str
    weight_decay: str
    beta1: str
    beta2: str
    epsilon: str
    max_grad_norm: str


OF_POLICY = OptimizerKnobs(
    learning_rate="optimizer.learning_rate",
    schedule="optimizer.schedule",
    warmup_steps="optimizer.warmup_steps",
    weight_decay="optimizer.weight_decay",
    beta1="optimizer.beta1",
    beta2="optimizer.beta2",
    epsilon="optimizer.epsilon",
    max_grad_norm="optimizer.max_grad_norm",
)
OF_CRITIC = OptimizerKnobs(
    learning_rate="optimizer.critic_learning_rate",
    schedule="optimizer.critic_schedule",
    warmup_steps="optimizer.critic_warmup_steps",
    weight_decay="optimizer.critic_weight_decay",
    beta1="optimizer.critic_beta1",
    beta2="optimizer.critic_beta2",
    epsilon="optimizer.critic_epsilon",
    max_grad_norm="optimizer.critic_max_grad_norm",
)
