"""Samples of counters of a store under construction."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from profiling.trace import schema
from profiling.trace.lanes import MOST_LANES, TooMuch
from profiling.trace.names import shortened

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_BLOCK = 100_000  # samples per insert


class Samples:
    """Series, numbered as they are asked for first, and their samples, on their way into the database."""

    def __init__(self, connection: "DuckDBPyConnection", *, most: int) -> None:
        self._connection = connection
        self._most = most
        self._series: dict[tuple[str, str, int, str], int] = {}
        self._new: list[tuple[int, int, float]] = []
        self._count = 0

    def series(self, name: str, unit: str, device: int, process: str) -> int:
        """Return the number of a series, which is made when its properties are new. Raises: TooMuch."""
        key = (shortened(name), unit[:40], device, process[:200])
        if key not in self._series and len(self._series) >= MOST_LANES:
            raise TooMuch(f"The trace has more than {MOST_LANES:,} counters, which is the most.")
        return self._series.setdefault(key, len(self._series))

    def name_processes(self, names: Mapping[str, str]) -> None:
        """Say what processes are called, of which no two may have one name."""
        self._series = {(*key[:3], names.get(key[3], key[3])[:200]): number for key, number in self._series.items()}

    def add(self, series: int, time: int, value: float) -> None:
        """Take a sample at a time that a store takes [Unix ns]; what is no number is left out."""
        if not (0 <= time < schema.LATEST and math.isfinite(value)):
            return
        self._count += 1
        if self._count > self._most:
            return
        self._new.append((series, time, value))
        if len(self._new) >= _BLOCK:
            self._flush()

    def finish(self) -> str:
        """Put the rest into the database; return a sentence where there were more than the most."""
        self._flush()
        if self._count <= self._most:
            return ""
        return f"Only the first {self._most:,} samples were read; the rest is left out."

    def _flush(self) -> None:
        schema.insert(self._connection, "raw_samples", list(self._new))
        self._new = []

    def rows(self, sampled: Mapping[int, int]) -> list[tuple[object, ...]]:
        """Return the rows of the table `series`, with how many samples of each were kept."""
        return [(n, *key, sampled.get(n, 0)) for key, n in self._series.items()]
