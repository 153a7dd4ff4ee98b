"""The coefficient of the KL to the reference: fixed, or moved towards a target."""

from collections.abc import Mapping

from jobs.catalog.spec.runspec import RunSpec

LARGEST_ERROR = 0.2


def next_coefficient(now: float, *, kl: float, target: float, horizon: int, num_samples: int) -> float:
    """Return the coefficient of the next step, after one whose KL was `kl`, in nats per token, over `num_samples`.

    It grows by the relative error kl / target - 1, held to +-0.2, times num_samples / horizon.
    Source: Fine-tuning language models from human preferences, arXiv 1909.08593, section 2.2.
    """
    error = min(max(kl / target - 1, -LARGEST_ERROR), LARGEST_ERROR)
    return now * (1 + error * num_samples / horizon)


def coefficient_of(spec: RunSpec, now: float | None) -> float | None:
    """Return the weight of the KL in a step where it moves to a target, else None. `now` is what it has moved to."""
    if not (spec.needs("reference") and spec.float_knob("algorithm.kl_target")):
        return None
    return now or spec.float_knob("algorithm.kl_coefficient")


def moved(spec: RunSpec, now: float, metrics: Mapping[str, float], *, num_samples: int) -> float:
    """Return the coefficient of the next step by the metrics of this one, which was weighted by `now`."""
    if "kl/reference" not in metrics:  # while a critic warms up the policy is not measured
        return now
    return next_coefficient(
        now,
        kl=metrics["kl/reference"],
        target=spec.float_knob("algorithm.kl_target"),
        horizon=spec.int_knob("algorithm.kl_horizon"),
        num_samples=num_samples,
    )
