"""The course of a metric: where it began, its best and its last level, and what of that is more than noise.

Levels are medians of a window, so that a single odd value moves none. The noise of a series is taken from its
second differences, so that a steady rise is none, nor is a turn. Of values that lie on a grid, as shares of few samples
do, levels are means, and the noise is that of all differences: none of them is far off, while a median of 0 and 1 is
either, and half of the differences may be 0. Nothing here knows a metric: what a
share of is asked for, and in which direction, is said by the condition that reads it. Pure functions over finite values
in the order of steps.
"""

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

_SIGMA = 1.4826  # of a normal distribution over the median of its absolute deviations
_MEDIAN = 1.2533  # sqrt(pi / 2): how much less sure a median is than a mean
_SURE = 3.0  # standard errors that a held-out loss is above its lowest of some tens: it is measured on the same data
_SURE_TO_FALL = 6.0  # the same for what wanders besides, as rewards do with the prompts of a step
_TURNS = 10  # values of which one turn is no more than a quarter of the bends, so that it makes no noise of its own
_WIDER = (1, 2, 4)  # windows in which a fall is looked for: noise that hides one of ten steps shows it in forty
_FIRST = 5  # values that make the level of the start,
_FAR = 8.0  # unless the first is so many deviations away from them, and none as far: then all was over at once
_AT_LEAST = 0.4  # of the best level: what counts as gained where little was
_NEARLY = 0.2  # of the start: a smaller lowest level counts as this
_NEWEST = 20  # values among which an outburst is looked for
_BEST = 3.5  # standard errors above its start that the best level of mere noise reaches once in a hundred times
_RISES = 2.05  # z of one chance in fifty
_OUTBURSTS = 3  # so many of them have to be far above the others
_PARTS = 40  # of which a share is told: groups, over all steps
_FIFTH = 1.645  # z that one of twenty is beyond
_GRID = 64  # values between the least and the largest that a grid has at most
_OFF_GRID = 0.05  # of its spacing: trainers round what they report
_UNKNOWN_PARTS = 4  # of a step, where all steps say the same
_MOST_PARTS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """Levels of a series: of its start, the highest, the lowest and the newest, and standard errors of changes.

    `error` is that of a change from one window to another, `error_since_start` from the start to a window: as the start
    is made of fewer values, it is the larger.
    """

    start: float
    highest: float
    lowest: float
    now: float
    error: float
    error_since_start: float


def course(values: Sequence[float], window: int) -> Course:
    """Return the course of at least `window` values.

    Errors are those of the noise of all, or of the later half where that is larger and has values enough: of a reward
    that is hardly ever given at first, samples differ only once it is, and of four evaluations half of the bends may be
    the turn that is looked for.
    """
    first, is_grid = min(_FIRST, window), is_on_grid(values)
    later = values[len(values) // 2 :]
    deviation = max(_noise(values, is_grid=is_grid), noise(later) if len(later) >= _TURNS else 0.0)
    level = _level_of(is_grid=is_grid)
    start = level(values[:first])
    if abs(values[0] - start) > _FAR * deviation and _is_outermost(values):
        first, start = 1, values[0]
    levels = _levels(values, window, level)
    return Course(
        start=start,
        highest=max(start, *levels),
        lowest=min(start, *levels),
        now=levels[-1],
        error=deviation * _change_error(window, window, is_grid=is_grid),
        error_since_start=deviation * _change_error(first, window, is_grid=is_grid),
    )


def _is_outermost(values: Sequence[float]) -> bool:
    """Return True if no later value is as high, or as low, as the first: else it is one of many that stand out."""
    later = values[1:]
    return values[0] > max(later) or values[0] < min(later)


_Level = Callable[[Sequence[float]], float]


def _levels(values: Sequence[float], window: int, level: _Level) -> list[float]:
    """Return the levels of windows that overlap by half, the newest values being the last one."""
    ends = [*range(window, len(values) + 1, max(1, window // 2)), len(values)]
    return [level(values[end - window : end]) for end in ends]


def _level_of(*, is_grid: bool) -> _Level:
    """Return what makes a level of some values of a series: their median, or their mean where they lie on a grid."""
    return statistics.fmean if is_grid else statistics.median


def is_on_grid(values: Sequence[float]) -> bool:
    """Return True if most values come again and all lie a multiple of the least difference apart, as shares of few
    samples do.
    """
    spacing = _grain(values)
    if spacing == 0:
        return False
    low = min(values)
    steps = [(value - low) / spacing for value in values]
    return max(steps) <= _GRID and all(abs(step - round(step)) <= _OFF_GRID for step in steps)


def change_error(before: int, after: int) -> float:
    """Return the standard error of the difference of two medians of so many values, in deviations of one value."""
    return _MEDIAN * math.sqrt(1.0 / before + 1.0 / after)


def _change_error(before: int, after: int, *, is_grid: bool) -> float:
    """Return the same of two levels of a series: on a grid these are means, which are surer by a fifth."""
    return change_error(before, after) / (_MEDIAN if is_grid else 1.0)


def noise(values: Sequence[float]) -> float:
    """Return the standard deviation of a series about its own course; 0 of fewer than four values.

    A second difference of independent values has the sixfold variance of one. Of values on a grid all of them count:
    the median would be 0 where a policy is mostly right or mostly wrong.
    """
    return _noise(values, is_grid=is_on_grid(values)) if len(values) >= 4 else 0.0


def _noise(values: Sequence[float], *, is_grid: bool) -> float:
    if len(values) < 4:
        return 0.0
    bends = [abs(a - 2 * b + c) for a, b, c in zip(values, values[1:], values[2:], strict=False)]
    if is_grid:
        return math.sqrt(math.fsum(bend * bend for bend in bends) / len(bends) / 6.0)
    return _SIGMA * statistics.median(bends) / math.sqrt(6.0)


def fell(values: Sequence[float], window: int) -> tuple[float, float, float]:
    """Return how much of what a metric had gained it has lost again, its best and its newest level.

    1 is all that was gained; of a metric that never gained anything, 40 % of what it had. 0 where the loss is within
    the noise, of this window and of wider ones that fit in twice: a start of five values is less sure than a window.
    """
    largest = (0.0, *_best_and_now(course(values, window)))
    for times in _WIDER:
        if len(values) < 2 * times * window and times > 1:
            break
        of = course(values, times * window)
        lost, gained = of.highest - of.now, max(of.highest - of.start, _AT_LEAST * abs(of.highest))
        error = of.error if of.highest > of.start else of.error_since_start
        if lost > _SURE_TO_FALL * error and gained > 0:
            largest = max(largest, (lost / gained, *_best_and_now(of)))
    return largest


def _best_and_now(of: Course) -> tuple[float, float]:
    return of.highest, of.now


def climbed(values: Sequence[float], window: int) -> tuple[float, float, float]:
    """Return the same of a metric that is better the lower it is."""
    share, best, now = fell([-value for value in values], window)
    return share, -best, -now


def above_lowest(values: Sequence[float], window: int) -> tuple[float, float, float]:
    """Return by which share of its lowest level a metric is above it, both levels; 0 within the noise.

    A lowest level near 0 counts as a fifth of the start: what is learned by heart moves between nothing and nearly so.
    """
    of = course(values, window)
    rise, unit = of.now - of.lowest, max(abs(of.lowest), _NEARLY * abs(of.start))
    return (rise / unit if unit and rise > _SURE * of.error else 0.0), of.lowest, of.now


def times_start(values: Sequence[float], window: int) -> tuple[float, float, float]:
    """Return the newest level over that of the start, and both; nan where it started at 0 or below."""
    of = course(values, window)
    return (of.now / of.start if of.start > 0 else math.nan), of.start, of.now


def gain(values: Sequence[float], window: int) -> tuple[float, float, float]:
    """Return the rise of the newest level above the start in standard errors of such a change, and both levels."""
    of = course(values, window)
    rise = of.now - of.start
    error = of.error_since_start
    return (rise / error if error > 0 else math.copysign(math.inf, rise) if rise else 0.0), of.start, of.now


def is_flat(values: Sequence[float]) -> bool:
    """Return True if a metric has never been above its start by more than noise, and does not rise as a whole.

    Mere noise is called flat 97 times in a hundred, from 30 values to thousands. A steady rise to sqrt(12 / n) * 4.1
    deviations of n values, 1.8 of 60 values and 0.8 of 300, is called flat in two of a hundred: its slope is known to a
    standard error of sqrt(12 / n), and it has to be 2.05 of them off the bound, which is 2.05 itself.
    """
    window = max(_FIRST, len(values) // 6)
    is_grid = is_on_grid(values)
    level, deviation = _level_of(is_grid=is_grid), _noise(values, is_grid=is_grid)
    of, highest = course(values, window), max(_levels(values, window, level))
    starts = [(of.start, of.error_since_start)]
    count = 2 * _FIRST
    while count <= window:  # a longer start is surer, a shorter one is over before an early rise
        starts.append((level(values[:count]), deviation * change_error(count, window)))
        count *= 2
    least = max(1e-3 * abs(of.start), _grain(values))
    has_risen = any(highest - start > _BEST * error + least for start, error in starts)
    return not has_risen and trend(values) < _RISES


def _grain(values: Sequence[float]) -> float:
    """Return the least difference of values of which most come again, as shares of few samples do: so far off may be
    their medians, however many there are. 0 of values that differ.
    """
    seen = sorted({round(value, 9) for value in values})
    return min((b - a for a, b in pairwise(seen)), default=0.0) if 2 * len(seen) < len(values) else 0.0


def most_rise(values: Sequence[float]) -> float:
    """Return the largest steady rise over all values that their noise may hide: one of fifty is larger.

    It is that of the line through them, or none where that falls, and so many standard errors more.
    """
    return max(0.0, _line_rise(values)) + _RISES * math.sqrt(12 / len(values)) * noise(values)


def _line_rise(values: Sequence[float]) -> float:
    """Return by how much the line of least squares rises from the first value to the last."""
    middle, mean = (len(values) - 1) / 2, math.fsum(values) / len(values)
    slope = math.fsum((i - middle) * (value - mean) for i, value in enumerate(values))
    return slope * 12 / (len(values) * (len(values) + 1)) if len(values) > 1 else 0.0


def share(values: Sequence[float], window: int) -> tuple[float, float, float]:
    """Return what a share of parts is at least (Wilson's bound, 95 of a hundred), of how many values, and its mean.

    Each value is the share of a step's parts, such as groups of samples. How many parts a step has is told by the
    values: of 0 and 1 alone it is one, and ten steps say little. So many steps are taken as have 40 parts, `window` at
    least; nan where there are not as many.
    """
    seen = sorted({round(value, 6) for value in values})
    gaps = [b - a for a, b in pairwise(sorted({0.0, *seen, 1.0})) if b > a]
    parts = min(_MOST_PARTS, max(1, round(1 / max(min(gaps), 1e-6)))) if seen not in ([0.0], [1.0]) else _UNKNOWN_PARTS
    count = max(window, -(-_PARTS // parts))
    if len(values) < count:
        return math.nan, math.nan, math.nan
    mean = math.fsum(values[-count:]) / count
    return _at_least(mean, count * parts), float(count), mean


def repeats(values: list[float]) -> float:
    """Return the share of values that are the same as their median, at least (Wilson's bound, 95 of a hundred).

    The mean of a few samples is the same now and then by chance, so that 14 of 20 say no more than half.
    """
    return _at_least(values.count(statistics.median(values)) / len(values), len(values))


def _at_least(share: float, total: int) -> float:
    spread = math.sqrt(max(0.0, share * (1 - share)) / total + (_FIFTH / (2 * total)) ** 2)
    return (share + _FIFTH**2 / (2 * total) - _FIFTH * spread) / (1 + _FIFTH**2 / total)


def trend(values: Sequence[float]) -> float:
    """Return Mann and Kendall's z: how surely values rise (above 2) or fall (below -2), whatever their scale.

    Of more than 60 values the means of 60 stretches are compared.
    """
    count = min(len(values), 60)
    edges = [round(i * len(values) / count) for i in range(count + 1)]
    means = [math.fsum(values[a:b]) / (b - a) for a, b in pairwise(edges)]
    score = sum((b > a) - (b < a) for i, a in enumerate(means) for b in means[i + 1 :])
    ties = [means.count(value) for value in set(means)]
    variance = (count * (count - 1) * (2 * count + 5) - sum(t * (t - 1) * (2 * t + 5) for t in ties)) / 18
    return (score - math.copysign(1, score)) / math.sqrt(variance) if score and variance > 0 else 0.0


def outburst(values: Sequence[float]) -> tuple[float, float, float]:
    """Return how far the third largest of the newest 20 values lies above what is usual, that value, and the usual one.

    Usual is the 90th percentile of all values before them. nan where there are not as many before.
    """
    before, newest = sorted(values[:-_NEWEST]), sorted(values[-_NEWEST:])
    if len(before) < _NEWEST:
        return math.nan, math.nan, math.nan
    usual = before[int(0.9 * (len(before) - 1))]
    return (newest[-_OUTBURSTS] / usual if usual > 0 else math.nan), usual, newest[-_OUTBURSTS]
