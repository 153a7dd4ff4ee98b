"""How far an answer moves with each constant that it rests on: the job estimated at both ends of its range.

For the detail of a page, not for every keystroke: two answers a constant, though of each only the parts that rest on it
are made anew.
"""

from dataclasses import dataclass

from jobs.planner.constant import Constant, Constants
from jobs.planner.estimate import Estimator
from jobs.planner.job import Job
from jobs.planner.result import Estimate, Interval, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Sensitivity:
    """A constant, and the answer from its low to its high: `needed`, bytes of the pool that binds, and `seconds` of a
    step, each from the least to the most over the range with what it is now between; `verdicts` at low and at high."""

    constant: Constant
    needed: Interval
    seconds: Interval
    verdicts: tuple[Verdict, Verdict]

    @property
    def share(self) -> float:
        """How far the answer moves: bytes or seconds, whichever moves more, as a share of what they are now."""
        return max((each.high - each.low) / each.middle for each in (self.needed, self.seconds))


def sensitivities(job: Job, constants: Constants | None = None) -> tuple[Sensitivity, ...]:
    """Return the constants that move a job's answer, the one that moves it most first; what a project has set or
    measured is taken as known. Raises: JobInvalid."""
    estimator = Estimator(constants)
    now = estimator.estimate(job)
    open_ones = [constant for constant in estimator.rests_on() if not constant.is_changed]
    unsorted = [_sensitivity(job, constant, estimator, now) for constant in open_ones]
    return tuple(sorted((each for each in unsorted if each.share > 0), key=lambda each: -each.share))


def _sensitivity(job: Job, constant: Constant, estimator: Estimator, now: Estimate) -> Sensitivity:
    low, high = (estimator.varied(constant.name, end).estimate(job) for end in (constant.low, constant.high))
    needed = [_needed(estimated, now.pool) for estimated in (low, now, high)]
    seconds = [estimated.time.step.middle for estimated in (low, now, high)]
    return Sensitivity(
        constant=constant,
        needed=Interval(low=min(needed), middle=needed[1], high=max(needed)),
        seconds=Interval(low=min(seconds), middle=seconds[1], high=max(seconds)),
        verdicts=(low.verdict, high.verdict),
    )


def _needed(estimate: Estimate, pool_name: str) -> float:
    return float(next(pool for pool in estimate.pools if pool.name == pool_name).binding.memory.total)
