"""Sums and percentiles by group, for events by the hundred thousand."""

from dataclasses import dataclass

import numpy as np

from profiling.analysis.intervals import Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """One row per key [g]: how many values, their sum, and of the values the middle, the 99th percentile and the ends.

    A percentile is a value that occurs (nearest rank).
    """

    keys: Ints
    count: Ints
    total: Ints
    p50: Ints
    p99: Ints
    least: Ints
    most: Ints


def grouped(keys: Ints, values: Ints) -> Groups:
    """Return the values [n] by their keys [n], keys ascending."""
    order = np.lexsort((values, keys))
    sorted_keys, sorted_values = keys[order], values[order]
    unique, first, count = np.unique(sorted_keys, return_index=True, return_counts=True)
    if not len(unique):
        nothing = np.empty(0, np.int64)
        return Groups(keys=nothing, count=nothing, total=nothing, p50=nothing, p99=nothing, least=nothing, most=nothing)

    def percentile(q: int) -> Ints:
        rank = -(-count * q // 100)  # rounded up, as nearest rank has it
        return np.asarray(sorted_values[first + np.maximum(rank, 1) - 1], np.int64)

    return Groups(
        keys=unique,
        count=count,
        total=np.add.reduceat(sorted_values, first),
        p50=percentile(50),
        p99=percentile(99),
        least=sorted_values[first],
        most=sorted_values[first + count - 1],
    )


def sums(keys: Ints, values: Ints) -> dict[int, int]:
    """Return the sum of the values [n] by their keys [n]."""
    unique, place = np.unique(keys, return_inverse=True)
    totals = np.zeros(len(unique), np.int64)
    np.add.at(totals, place, values)
    return dict(zip(unique.tolist(), totals.tolist(), strict=True))


def percentile(values: Ints, q: int) -> int | None:
    """Return a percentile by nearest rank; None where there is no value."""
    if not len(values):
        return None
    ordered = np.sort(values)
    return int(ordered[max(-(-len(ordered) * q // 100), 1) - 1])
