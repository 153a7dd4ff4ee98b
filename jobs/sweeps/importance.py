"""How much of the order of a sweep's runs each knob explains, and how much chance would."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import factorial, isfinite, prod
from typing import Any

import numpy as np
import numpy.typing as npt

SHUFFLES = 2000
ALPHA = 0.05
MOST_GROUPS = 5  # of a knob whose values hardly come twice
LEAST_IN_GROUP = 3

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class KnobImportance:
    """What a knob, by itself, does to the outcome of the `num_runs` runs that have one.

    `share`: of the spread of the runs' ranks, what lies between the knob's values and would not by chance (epsilon
    squared of Kruskal and Wallis), 0 to 1. `chance`: what the largest share of any knob stays below in 95 % of shuffles
    of the outcomes. `p`: the fraction of shuffles in which some knob has as much. The three are None where `needed`
    says how many runs it takes at least to tell, or where the runs have fewer than two values of it (`num_values`).
    `trend`: rank correlation of outcome and value (Spearman), None where values have no order.
    """

    knob: str
    num_runs: int
    num_values: int
    needed: int = 0
    share: float | None = None
    chance: float | None = None
    p: float | None = None
    trend: float | None = None

    @property
    def is_shown(self) -> bool:
        """True where chance alone rarely does as much."""
        return self.p is not None and self.p <= ALPHA


def knob_importance(
    *, knobs: Sequence[str], values: Sequence[Mapping[str, Any]], outcomes: Sequence[float | None]
) -> tuple[KnobImportance, ...]:
    """Return what each knob explains, the largest share first, those that cannot be told last.

    `values` and `outcomes` are of the same runs; a run without a finite outcome, or without the value of a knob, counts
    for nothing. Each knob is looked at alone: what two of them do together is in neither share. Source of the share:
    Tomczak and Tomczak 2014; of its chance: the largest statistic over shuffles, Westfall and Young 1993.
    """
    pairs = zip(values, outcomes, strict=True)
    whole = [(own, y) for own, y in pairs if y is not None and isfinite(y) and all(knob in own for knob in knobs)]
    ranks = _ranks([y for _own, y in whole])
    by_knob: dict[str, KnobImportance] = {}
    groups: dict[str, Ints] = {}
    for knob in knobs:
        column = [own[knob] for own, _y in whole]
        num_values, labels = len(set(map(str, column))), _groups(column)
        needed = 0 if num_values < 2 else _needed(column, labels)
        by_knob[knob] = KnobImportance(
            knob=knob, num_runs=len(whole), num_values=num_values, needed=needed, trend=_trend(column, ranks)
        )
        if not needed and num_values > 1:
            groups[knob] = labels
    if groups:
        shuffled = np.random.default_rng(0).permuted(np.tile(ranks, (SHUFFLES, 1)), axis=1)
        largest = np.max([_shares(shuffled, labels) for labels in groups.values()], axis=0)
        chance = float(np.quantile(largest, 1 - ALPHA))
        for knob, labels in groups.items():
            share = float(_shares(ranks[None, :], labels)[0])
            p = (1 + int(np.sum(largest >= share - 1e-12))) / (1 + SHUFFLES)
            own = by_knob[knob]
            by_knob[knob] = KnobImportance(
                knob=knob,
                num_runs=own.num_runs,
                num_values=own.num_values,
                trend=own.trend,
                share=share,
                chance=chance,
                p=p,
            )
    return tuple(sorted(by_knob.values(), key=lambda one: (one.share is None, -(one.share or 0.0))))


def _shares(ranks: Floats, labels: Ints) -> Floats:
    """Return epsilon squared of each row of ranks [m, n] over groups [n], at least 0; 0 where all ranks are one."""
    n, k = len(labels), int(labels.max()) + 1
    members = np.eye(k)[labels]  # [n, k]
    centered = ranks - ranks.mean(axis=1, keepdims=True)
    between = np.sum((centered @ members) ** 2 / members.sum(axis=0), axis=1)
    total = np.sum(centered**2, axis=1)
    eta = np.divide(between, total, out=np.zeros(len(ranks)), where=total > 0)
    adjusted: Floats = np.clip(1 - (1 - eta) * (n - 1) / (n - k), 0.0, 1.0)
    return np.where(total > 0, adjusted, 0.0)


def _ranks(values: Sequence[float]) -> Floats:
    """Return ranks from 0; equal values share the mean of theirs."""
    _unique, places, counts = np.unique(np.array(values, dtype=float), return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    middles: Floats = ends - (counts + 1) / 2
    return middles[places]


def _is_ordered(column: Sequence[object]) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in column)


def _groups(column: Sequence[Any]) -> Ints:
    """Return the group of each run, from 0: the knob's values; of numbers that hardly come twice, stretches of them."""
    distinct = sorted(set(column), key=str)
    most = max(2, min(len(column) // LEAST_IN_GROUP, MOST_GROUPS))
    if _is_ordered(column) and len(distinct) > most:
        return np.minimum((_ranks(column) / len(column) * most).astype(np.int64), most - 1)
    return np.array([distinct.index(value) for value in column], dtype=np.int64)


def _needed(column: Sequence[object], labels: Ints) -> int:
    """Return 0 if so many runs can show anything, else how many could, at the least: the same groups, better filled."""
    if _least_p(list(Counter(labels.tolist()).values())) <= ALPHA:
        return 0
    num_groups = len(set(map(str, column)))
    for n in range(len(column) + 1, 1000):
        k = max(2, min(n // LEAST_IN_GROUP, MOST_GROUPS)) if _is_ordered(column) else num_groups
        k = min(k, num_groups)
        sizes = [n // k + (place < n % k) for place in range(k)]
        if min(sizes) and _least_p(sizes) <= ALPHA:
            return n
    return 1000


def _least_p(sizes: Sequence[int]) -> float:
    """Return the chance of one best order among all ways to put runs into groups of these sizes."""
    n = sum(sizes)
    if n <= len(sizes):
        return 1.0
    ways = factorial(n) // prod(factorial(size) for size in sizes)
    alike = prod(factorial(count) for count in Counter(sizes).values())  # whole groups that may change places
    return alike / ways


def _trend(column: Sequence[Any], ranks: Floats) -> float | None:
    if len(column) < 3 or not _is_ordered(column):
        return None
    own = _ranks(column)
    if not np.ptp(own) or not np.ptp(ranks):
        return None
    return float(np.corrcoef(own, ranks)[0, 1])
