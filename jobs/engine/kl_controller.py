"""The coefficient of the KL to the reference: fixed, or moved towards a target."""

LARGEST_ERROR = 0.2


def next_coefficient(now: float, *, kl: float, target: float, horizon: int, num_samples: int) -> float:
    """Return the coefficient of the next step, after one whose KL was `kl`, in nats per token, over `num_samples`.

    It grows by the relative error kl / target - 1, held to +-0.2, times num_samples / horizon.
    Source: Fine-tuning language models from human preferences, arXiv 1909.08593, section 2.2.
    """
    error = min(max(kl / target - 1, -LARGEST_ERROR), LARGEST_ERROR)
    return now * (1 + error * num_samples / horizon)
