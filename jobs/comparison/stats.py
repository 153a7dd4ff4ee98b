"""What two runs' numbers allow to say: medians and means with intervals that respect autocorrelation. Pure arithmetic.

Steps of one run are not independent draws: a slow step is often followed by a slow one. Every interval here comes from
the method of batch means (Law and Carson, "A sequential procedure for determining the length of a steady-state
simulation", Operations Research 27, 1979): the series is cut into few consecutive batches, whose means are taken to be
independent, and Student's t with one degree less than there are batches gives the interval.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from jobs.telemetry.chunks import Floats

MIN_STEPS = 10  # five batches of two: below that an interval would say nothing
MEAN_STEPS = 20  # the last common steps over which an outcome is averaged
MEAN_BATCHES = 5
MAX_BATCHES = 30
CORRELATION_STEPS = 60  # the last common steps that the correlation from step to step is estimated from
MAX_CORRELATION = 0.95
TREND_ALLOWANCE = 3.0
"""What wanders slowly looks like a line for a while. Of 1,500 simulated autoregressions of 0.9 and 0.95 whose mean is 0
the interval, widened by 1.3, misses it in 1.4 and 3.9 %, without the line in 1.4 and 3.5 %; by a factor of 1 it were
5.5 and 10.9 %."""
LEAST_DEGREES = 4  # of a spread between runs: below, Student's t is more than 1.5 times what it is with many

# Student's t, 97.5th percentile, for 1 to 29 degrees of freedom (any table of the t distribution).
_T = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045,
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfidenceInterval:
    """An estimate and its 95 % interval, from `n` steps. `low` <= `value` <= `high`."""

    value: float
    low: float
    high: float
    n: int

    @property
    def half(self) -> float:
        """Half of its width."""
        return (self.high - self.low) / 2

    @property
    def exp(self) -> "ConfidenceInterval":
        """The interval of exp(x), where this one is of x: of a ratio, from a difference of natural logarithms."""
        return ConfidenceInterval(
            value=math.exp(self.value), low=math.exp(self.low), high=math.exp(self.high), n=self.n
        )

    def excludes(self, number: float) -> bool:
        """Return True if the interval does not reach `number`: then a difference from it is shown."""
        return self.low > number or self.high < number


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpread:
    """By how much runs of one configuration differ: the standard deviation `log_sd` between the natural logarithms of
    their medians, known with so many degrees of freedom, from `num_runs` runs of the project (0: none were there)."""

    log_sd: float
    degrees: int
    num_runs: int = 0

    @property
    def reach(self) -> float:
        """Half of the 95 % interval of the logarithm of the ratio of two such runs, were their medians exact."""
        return t_quantile(min(len(_T), self.degrees)) * math.sqrt(2) * self.log_sd

    def widened(self, ratio: ConfidenceInterval) -> ConfidenceInterval:
        """Return the interval of a positive ratio of two runs with this spread added to the noise that it covers."""
        value = math.log(ratio.value)
        low = value - math.hypot(value - math.log(ratio.low), self.reach)
        high = value + math.hypot(math.log(ratio.high) - value, self.reach)
        return ConfidenceInterval(value=ratio.value, low=math.exp(low), high=math.exp(high), n=ratio.n)


def pooled_spread(groups: Sequence[Sequence[float]]) -> RunSpread | None:
    """Return the spread within groups of positive values, each group the medians of runs of one configuration.

    The pooled variance of the logarithms: squares about each group's mean over the sum of its runs less one (any text
    on the analysis of variance). None with fewer than `LEAST_DEGREES` degrees of freedom.
    """
    logs = [np.log(np.asarray(group, float)) for group in groups if len(group) > 1]
    degrees = sum(len(group) - 1 for group in logs)
    if degrees < LEAST_DEGREES:
        return None
    squares = sum(float(((group - group.mean()) ** 2).sum()) for group in logs)
    num_runs = sum(len(group) for group in logs)
    return RunSpread(log_sd=math.sqrt(squares / degrees), degrees=degrees, num_runs=num_runs)


def t_quantile(degrees: int) -> float:
    """Return the 97.5th percentile of Student's t for 1 to 29 degrees of freedom."""
    return _T[degrees - 1]


def batch_error(values: Floats, *, num_batches: int) -> tuple[float, float]:
    """Return mean and standard error of `values` [n] by batch means; n is at least twice `num_batches`.

    Batches hold n // num_batches values; what is left over at the start counts in neither. The error is the batches'
    standard deviation (with n - 1) over the root of their number.
    """
    size = len(values) // num_batches
    batches = values[len(values) - size * num_batches :].reshape(num_batches, size).mean(axis=1)
    return float(batches.mean()), float(batches.std(ddof=1)) / math.sqrt(num_batches)


def mean_interval(values: Floats) -> ConfidenceInterval | None:
    """Return the mean of the last `MEAN_STEPS` finite values [n] with its interval; None with fewer than `MIN_STEPS`.

    Of fewer than 20 values the largest multiple of five is taken. With paired differences of two runs (same step, hence
    the same prompts where data and seed agree) as `values`, it is the interval of the mean difference.
    """
    finite = values[np.isfinite(values)]
    n = min(len(finite), MEAN_STEPS) // MEAN_BATCHES * MEAN_BATCHES
    if n < MIN_STEPS:
        return None
    mean, error = batch_error(finite[-n:], num_batches=MEAN_BATCHES)
    half = t_quantile(MEAN_BATCHES - 1) * error
    return ConfidenceInterval(value=mean, low=mean - half, high=mean + half, n=n)


def correlated_mean_interval(values: Floats) -> ConfidenceInterval | None:
    """Return the same mean as `mean_interval`, with an interval that holds where values wander slowly.

    Five batches of four steps do not see what stays for twenty. So the error is never taken below that of a
    first-order autoregression: s sqrt((1 + r) / (1 - r) / n), with the spread s and the correlation r from step to step
    of the last 60 values, and t of their N (1 - r) / (1 + r) - 1 degrees of freedom (Zwiers and von Storch, "Taking
    serial correlation into account in tests of the mean", Journal of Climate 8, 1995). r is corrected for its bias,
    (1 + 3 r) / N (Marriott and Pope, "Bias in the estimation of autocorrelations", Biometrika 41, 1954). Of two runs of
    which one learns and one does not, the difference grows along a line, which is no noise: the error is no more than
    `TREND_ALLOWANCE` times that about the line.
    """
    interval = mean_interval(values)
    if interval is None:
        return None
    last = values[np.isfinite(values)][-CORRELATION_STEPS:]
    wander = _wander(last - last.mean(), interval.n)
    steps = np.arange(len(last)) - (len(last) - 1) / 2
    slope = float(steps @ (last - last.mean())) / float(steps @ steps)
    about_line = _wander(last - last.mean() - slope * steps, interval.n)
    half = max(interval.half, min(wander, TREND_ALLOWANCE * about_line))
    return ConfidenceInterval(value=interval.value, low=interval.value - half, high=interval.value + half, n=interval.n)


def _wander(apart: Floats, n: int) -> float:
    """Return half of the 95 % interval of a mean of `n` values that a first-order autoregression leaves, by deviations
    [size] of their level; 0 where there are none."""
    size, total = len(apart), float(apart @ apart)
    if not total:
        return 0.0
    estimate = float(apart[:-1] @ apart[1:]) / total
    r = min(MAX_CORRELATION, max(0.0, estimate + (1 + 3 * estimate) / size))
    error = math.sqrt(total / (size - 1) * (1 + r) / (1 - r) / n)
    degrees = int(size * (1 - r) / (1 + r)) - 1
    return t_quantile(max(1, min(len(_T), degrees))) * error


def median_interval(values: Floats) -> ConfidenceInterval | None:
    """Return the median of the finite values [n] with a rank-based interval; None with fewer than `MIN_STEPS`.

    The share of values above the median is one half give or take its batch-means error e; the interval ends at the
    order statistics of 1/2 - t e and 1/2 + t e (Heidelberger and Lewis, "Quantile estimation in dependent sequences",
    Operations Research 32, 1984). It assumes no distribution; e is never taken below that of independent values,
    1 / (2 sqrt(n)), for which it is the usual sign-test interval.
    """
    finite = values[np.isfinite(values)]
    n = len(finite)
    if n < MIN_STEPS:
        return None
    ordered = np.sort(finite)
    median = float(np.median(ordered))
    above = (finite > median) + 0.5 * (finite == median)
    num_batches = min(MAX_BATCHES, max(MEAN_BATCHES, math.isqrt(n)))
    _, error = batch_error(above, num_batches=num_batches)
    reach = t_quantile(num_batches - 1) * max(error, 0.5 / math.sqrt(n))
    low = max(0, math.floor(n * (0.5 - reach)))
    high = min(n - 1, math.ceil(n * (0.5 + reach)) - 1)
    return ConfidenceInterval(value=median, low=float(ordered[low]), high=float(ordered[high]), n=n)


def ratio_interval(one: ConfidenceInterval, base: ConfidenceInterval) -> ConfidenceInterval | None:
    """Return one / base of two independent positive estimates with its interval; None if a bound is not positive.

    The variances are recovered from the two intervals on the log scale and added (MOVER; Zou and Donner, "Construction
    of confidence limits about effect measures", Statistics in Medicine 27, 2008): with differences d of logs,
    low = d - sqrt((x - x_low)^2 + (b_high - b)^2), high = d + sqrt((x_high - x)^2 + (b - b_low)^2).
    """
    if min(one.low, base.low) <= 0:
        return None
    x, x_low, x_high = (math.log(v) for v in (one.value, one.low, one.high))
    b, b_low, b_high = (math.log(v) for v in (base.value, base.low, base.high))
    low = x - b - math.hypot(x - x_low, b_high - b)
    high = x - b + math.hypot(x_high - x, b - b_low)
    return ConfidenceInterval(value=math.exp(x - b), low=math.exp(low), high=math.exp(high), n=min(one.n, base.n))


def welch_interval(one: Floats, base: Floats) -> ConfidenceInterval | None:
    """Return mean(one) - mean(base) of independent runs, one value each, with its interval; None below two runs a side.

    Welch's t interval: variances may differ, degrees of freedom after Satterthwaite (Welch, "The generalization of
    Student's problem when several different population variances are involved", Biometrika 34, 1947), rounded down and
    at most 29. Its spread is that between runs, so that it holds for other seeds as well.
    """
    n, m = len(one), len(base)
    if min(n, m) < 2:
        return None
    a, b = float(one.var(ddof=1)) / n, float(base.var(ddof=1)) / m
    difference = float(one.mean() - base.mean())
    degrees = (a + b) ** 2 / (a**2 / (n - 1) + b**2 / (m - 1)) if a + b else 1.0
    half = t_quantile(max(1, min(len(_T), int(degrees)))) * math.sqrt(a + b)
    return ConfidenceInterval(value=difference, low=difference - half, high=difference + half, n=n + m)
