"""The learning rate of each step. A pure function."""

import math

from jobs.catalog.spec.runspec import RunSpec
from jobs.engine.optimizer_knobs import OF_POLICY, OptimizerKnobs


def learning_rate(spec: RunSpec, step: int, *, knobs: OptimizerKnobs = OF_POLICY) -> float:
    """Return the learning rate of `step` (counted from 1), by the `knobs` of the role.

    It climbs linearly over `warmup_steps`, reaching the peak at the last of them. After that it stays
    (constant), or falls towards zero, which the step after the last would have: linear 1 - t, cosine (1 + cos(pi t)) /
    2, with t the fraction of the falling steps that are done. These are all steps after warm-up, or the last
    `optimizer.decay_steps` of them, which hold for all roles.
    """
    peak = spec.float_knob(knobs.learning_rate)
    warmup = spec.int_knob(knobs.warmup_steps)
    if step <= warmup:
        return peak * step / warmup
    decay = spec.int_knob("optimizer.decay_steps")
    start = max(warmup, spec.num_steps - decay) if decay else warmup
    done = max(step - 1 - start, 0) / max(spec.num_steps - start, 1)
    schedule = spec.knob(knobs.schedule)
    if schedule == "linear":
        return peak * (1 - done)
    if schedule == "cosine":
        return peak * (1 + math.cos(math.pi * done)) / 2
    return peak
