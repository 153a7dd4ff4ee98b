"""How the samples of a filter are spread: a histogram of their rewards, and reward against length and step."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from django.db.models import Case, Count, F, IntegerField, Max, Min, QuerySet, Value, When

from jobs.models import Sample
from jobs.telemetry.samples import SampleFilter, filtered, visible_attempts

NUM_BINS = 20
MAX_POINTS = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleDistribution:
    """`counts[i]` rewards lie from `edges[i]` to below `edges[i + 1]`; the last bin has its end, too.

    `points` are (id, step, tokens, reward) of every sample that has a reward, or of about `MAX_POINTS` spread over all
    of them; `num_unscored` samples have none.
    """

    total: int
    num_unscored: int
    edges: tuple[float, ...]
    counts: tuple[int, ...]
    points: Sequence[tuple[int, int, int, float]]


def read_distribution(*, run_id: str, chosen: SampleFilter) -> SampleDistribution:
    """Return how the samples are spread; the filter's own range of rewards is left aside, so that it can be moved."""
    rows = filtered(run_id, visible_attempts(run_id), replace(chosen, reward_from=None, reward_below=None))
    facts = rows.aggregate(total=Count("pk"), scored=Count("reward"), low=Min("reward"), high=Max("reward"))
    scored = rows.filter(reward__isnull=False)
    edges = bin_edges(facts["low"], facts["high"]) if facts["scored"] else ()
    return SampleDistribution(
        total=facts["total"],
        num_unscored=facts["total"] - facts["scored"],
        edges=edges,
        counts=_counts(scored, edges) if edges else (),
        points=_points(scored, facts["scored"]),
    )


def bin_edges(low: float, high: float) -> tuple[float, ...]:
    """Return the edges of at most `NUM_BINS` equal bins over low to high, at round numbers (1, 2 or 5 times 10^n)."""
    rough = high / NUM_BINS - low / NUM_BINS
    if rough == 0:  # one reward, or two that are nearly the same number
        return (low, high)
    exponent = math.floor(math.log10(rough))
    size = 10.0**exponent
    step = next(size * factor for factor in (1, 2, 5, 10, 20) if _num_bins(low, high, size * factor) <= NUM_BINS)
    first = math.floor(low / step)
    return tuple(round((first + i) * step, 2 - exponent) for i in range(_num_bins(low, high, step) + 1))


def _num_bins(low: float, high: float, step: float) -> int:
    """Return how many bins of this size hold low to high, where each begins at a multiple of it."""
    return max(math.ceil(round(high / step, 9)) - math.floor(low / step), 1)


def _counts(scored: QuerySet[Sample], edges: Sequence[float]) -> tuple[int, ...]:
    """Return how many rewards lie in each bin, by the same comparisons as a filter makes."""
    last = len(edges) - 2
    places = [When(reward__lt=edge, then=Value(i)) for i, edge in enumerate(edges[1:-1])]
    place = Case(*places, default=Value(last), output_field=IntegerField())
    by_place = dict(scored.annotate(place=place).values_list("place").annotate(n=Count("pk")))
    return tuple(by_place.get(i, 0) for i in range(last + 1))


def _points(scored: QuerySet[Sample], total: int) -> list[tuple[int, int, int, float]]:
    stride = total // MAX_POINTS + 1
    if stride > 1:
        stride |= 1  # odd: groups have powers of two, and one place of each would be a biased choice
        scored = scored.annotate(turn=F("pk") % stride).filter(turn=0)
    rows = scored.order_by().values_list("pk", "step", "tokens", "reward")[: 2 * MAX_POINTS]
    return [(pk, step, tokens, reward) for pk, step, tokens, reward in rows if reward is not None]
