"""How far an answer moves with each constant that it rests on: the job estimated at both ends of its range.

For the detail of a page, not for every keystroke: two answers a constant, though of each only the parts that rest on it
are made anew.
"""

from dataclasses import dataclass

from jobs.planner.constant import Constant, Constants
from jobs.planner.estimate import Estimator, Fit
from jobs.planner.job import Job
from jobs.planner.result import Interval, Verdict


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
    variation = _Variation(job, constants)
    moved = [variation.by(constant) for constant in variation.open_constants()]
    return tuple(sorted((each for each in moved if each.share > 0), key=lambda each: -each.share))


class _Variation:
    """A job's bytes and seconds, with one constant or another at an end of its range. What rests on none of them is not
    asked again: of most constants only the seconds are."""

    def __init__(self, job: Job, constants: Constants | None) -> None:
        self._job = job
        self._estimator = Estimator(constants)
        self._fit = self._estimator.fit(job)
        self._seconds = self._estimator.seconds(self._fit)
        self._names_of_time = self._estimator.rests_on_for_time(self._fit)

    def open_constants(self) -> list[Constant]:
        """Return the constants that bytes or seconds rest on and that nobody has set or measured here."""
        used = self._fit.names | self._names_of_time
        return [each for each in self._estimator.rests_on() if each.name in used and not each.is_changed]

    def by(self, constant: Constant) -> Sensitivity:
        """Return how far a constant moves the answer."""
        low, high = (self._at(constant, end) for end in (constant.low, constant.high))
        needed = [_needed(fit, self._fit.pool.name) for fit in (low[0], self._fit, high[0])]
        seconds = [low[1], self._seconds, high[1]]
        return Sensitivity(
            constant=constant,
            needed=Interval(low=min(needed), middle=needed[1], high=max(needed)),
            seconds=Interval(low=min(seconds), middle=seconds[1], high=max(seconds)),
            verdicts=(low[0].verdict, high[0].verdict),
        )

    def _at(self, constant: Constant, value: float) -> tuple[Fit, float]:
        """Return whether the job fits with another value of a constant, and the seconds of a step."""
        if value == constant.value:
            return self._fit, self._seconds
        varied = self._estimator.varied(constant.name, value)
        fit = varied.fit(self._job) if constant.name in self._fit.names else self._fit
        return fit, varied.seconds(fit)


def _needed(fit: Fit, pool_name: str) -> float:
    return float(next(pool for pool in fit.pools if pool.name == pool_name).binding.memory.total)
