"""Pairs of runs between which nothing differs, or one thing that was planted, made of recorded runs by resampling.

A series is its trend (a running mean) and what is left; of what is left, blocks of consecutive steps from nearby are
drawn with replacement (the block bootstrap: Künsch, "The jackknife and the bootstrap for general stationary
observations", Annals of Statistics 17, 1989; from nearby, as noise may grow or shrink along a run: Paparoditis and
Politis, "Local block bootstrap", Comptes Rendus Mathématique 335, 2002). So both of a pair learn the same and their
steps take as long, and each has noise of its own that hangs together as the run's did.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from jobs.comparison.conditions import differing
from jobs.comparison.phases import STEP_METRIC
from jobs.comparison.read import Columns, SeriesPoints
from jobs.comparison.stats import pooled_spread
from jobs.comparison.verdict import OF_DEMO, OUTCOMES, RunSpreads, RunVerdict, steady, verdict
from jobs.telemetry.chunks import Floats, Ints
from tests.proofs.verdict.corpus import Sample

BLOCK = 6
NEARBY = 18
TREND = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What was said of one pair."""

    names: tuple[str, str]
    verdict: RunVerdict

    @property
    def is_speed_claimed(self) -> bool:
        """A difference in step time was said to be there."""
        speed = self.verdict.speed
        return speed is not None and self.verdict.is_speed_comparable and speed.excludes(1)

    @property
    def is_speed_apart(self) -> bool:
        """Step times would be said to differ, if nobody minded the conditions."""
        return self.verdict.speed is not None and self.verdict.speed.excludes(1)

    @property
    def is_outcome_claimed(self) -> bool:
        """A difference of the outcome was said to be there."""
        return self.verdict.gain is not None and self.verdict.gain.excludes(0)

    @property
    def is_claimed(self) -> bool:
        """Better or worse was said."""
        return self.verdict.badge in ("better", "worse")


def same_run(samples: Sequence[Sample], *, num_pairs: int, seed: int, faster: float = 0.0) -> Iterator[Told]:
    """Yield what is said of pairs whose two runs are resampled from one and the same; in turn from each sample.

    `faster`: the share by which the steps of one of them were made shorter.
    """
    rng = np.random.default_rng(seed)
    for number in range(num_pairs):
        sample = samples[number % len(samples)]
        run, base = (resampled(sample.columns, rng) for _ in range(2))
        yield told(replace(sample, columns=shorter(run, faster)), replace(sample, columns=base))


def two_seeds(samples: Sequence[Sample], *, num_pairs: int, seed: int, has_repeats: bool = False) -> Iterator[Told]:
    """Yield what is said of pairs of two different seeds: each pair as recorded first, then resampled.

    `has_repeats`: the spread between runs is that of all other samples, as repeats in a project would tell it.
    """
    rng = np.random.default_rng(seed)
    pairs = list(combinations(samples, 2))
    for number in range(num_pairs):
        one, other = pairs[number % len(pairs)]
        spreads = _measured([sample for sample in samples if sample not in (one, other)]) if has_repeats else OF_DEMO
        if number >= len(pairs):
            one, other = (replace(sample, columns=resampled(sample.columns, rng)) for sample in (one, other))
        yield told(one, other, spreads)


def _measured(repeats: Sequence[Sample]) -> RunSpreads:
    spread = pooled_spread([[float(np.median(steady(sample.columns[STEP_METRIC]))) for sample in repeats]])
    return RunSpreads(measured={STEP_METRIC: spread} if spread else {})


def told(run: Sample, base: Sample, spreads: RunSpreads = OF_DEMO) -> Told:
    """Return what Compare says of the two."""
    conditions = differing(run.conditions, base.conditions)
    said = verdict(run_id="run", run=run.columns, base=base.columns, conditions=conditions, spreads=spreads)
    return Told(names=(run.name, base.name), verdict=said)


def shorter(columns: Columns, share: float) -> Columns:
    """Return the columns with all times so much shorter."""
    return {
        name: SeriesPoints(x=points.x, y=points.y * (1 - share)) if name.startswith("time/") else points
        for name, points in columns.items()
    }


def resampled(columns: Columns, rng: np.random.Generator) -> Columns:
    """Return the columns with noise drawn anew: the same steps for all times, others for the outcome."""
    longest = max(len(points.x) for points in columns.values())
    draws = {True: _blocks(longest, rng), False: _blocks(longest, rng)}
    return {
        name: SeriesPoints(x=points.x, y=_redrawn(points.y, draws[name.startswith("time/")], is_time(name)))
        for name, points in columns.items()
        if name == STEP_METRIC or name in OUTCOMES or name.startswith("time/")
    }


def is_time(name: str) -> bool:
    """Return True for what is a number of seconds, whose noise grows with it."""
    return name.startswith("time/")


def _redrawn(y: Floats, places: Ints, is_ratio: bool) -> Floats:
    places = np.minimum(places[: len(y)], len(y) - 1)
    trend = running_mean(y)
    if is_ratio and (trend > 0).all():
        return trend * (y / trend)[places]
    return trend + (y - trend)[places]


def running_mean(y: Floats) -> Floats:
    """Return the mean of nine values around each; at the ends of those that there are."""
    kernel = np.ones(TREND)
    return np.convolve(y, kernel, "same") / np.convolve(np.ones(len(y)), kernel, "same")


def _blocks(n: int, rng: np.random.Generator) -> Ints:
    """Return a place for each of `n` steps: runs of six consecutive ones, each begun at most 18 steps away."""
    last = max(0, n - BLOCK)
    places: list[int] = []
    for start in range(0, n, BLOCK):
        first = int(rng.integers(max(0, min(start, last) - NEARBY), min(last, start + NEARBY) + 1))
        places += range(first, first + BLOCK)
    found: Ints = np.minimum(np.array(places[:n], np.int64), n - 1)
    return found
