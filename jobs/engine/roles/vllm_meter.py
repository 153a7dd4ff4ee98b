"""What a vLLM engine says of its own work, as readings between two answers.

Counters and histograms come from vLLM's metrics and are told as what was added since the last reading (names:
vllm/v1/metrics/loggers.py). Gauges mean nothing once it has generated, so their peaks are taken while it does: the
meter is one of the engine's own stat loggers, which are called at every scheduler step.
"""

import time
from collections.abc import Callable, Iterable
from typing import Any

HITS, QUERIES = "vllm:prefix_cache_hits", "vllm:prefix_cache_queries"
PREEMPTIONS = "vllm:num_preemptions"
FEW = 0.25  # of the most requests at once: below, an engine is nearly empty
FIRST_TOKEN = "vllm:time_to_first_token_seconds"  # noqa: S105 (a token of text)


class VllmMeter:
    """Reads an engine's metrics; `ask` returns them (`LLM.get_metrics`)."""

    def __init__(self, ask: Callable[[], Iterable[Any]]) -> None:
        self._ask = ask
        self._peaks: dict[str, float] = {}
        self._seconds: dict[int, float] = {}  # requests in the batch -> seconds
        self._last = 0.0
        self._before = self._totals()

    def record(self, scheduler_stats: Any, *_: Any, **__: Any) -> None:
        """Take in one scheduler step (vllm.v1.metrics.stats.SchedulerStats; None for a step of others)."""
        if scheduler_stats is None:
            return
        now = {
            "running_requests": float(scheduler_stats.num_running_reqs),
            "waiting_requests": float(scheduler_stats.num_waiting_reqs),
            "kv_cache_percent": 100.0 * float(scheduler_stats.kv_cache_usage),
        }
        self._peaks = {name: max(value, self._peaks.get(name, 0.0)) for name, value in now.items()}
        moment = time.perf_counter()
        if self._last:
            running = int(scheduler_stats.num_running_reqs)
            self._seconds[running] = self._seconds.get(running, 0.0) + moment - self._last
        self._last = moment

    def log(self) -> None:
        """Print nothing: a stat logger may."""

    def record_sleep_state(self, *_: Any) -> None:
        """Take no notice of sleep: a stat logger may."""

    def readings(self) -> dict[str, float]:
        """Return peaks and sums since the last call; what was not seen or asked for is left out."""
        values, self._peaks = self._peaks | self._occupancy(), {}
        self._seconds, self._last = {}, 0.0
        now = self._totals()
        added = {name: now[name] - self._before.get(name, 0.0) for name in now}
        self._before = now
        values["preemptions"] = added.get(PREEMPTIONS, 0.0)
        if added.get(QUERIES):
            values["prefix_cache_hit_percent"] = 100.0 * added.get(HITS, 0.0) / added[QUERIES]
        if added.get(f"{FIRST_TOKEN}:count"):
            values["time_to_first_token_seconds"] = added[f"{FIRST_TOKEN}:sum"] / added[f"{FIRST_TOKEN}:count"]
        return values

    def _occupancy(self) -> dict[str, float]:
        """Return the mean of requests in a batch over time, and the share of time with less than a quarter "
        "of the most."""
        spent = {running: seconds for running, seconds in self._seconds.items() if running}
        total = sum(spent.values())
        if not total:
            return {}
        few = sum(seconds for running, seconds in spent.items() if running < FEW * max(spent))
        return {
            "running_requests_mean": sum(running * seconds for running, seconds in spent.items()) / total,
            "nearly_empty_percent": 100 * few / total,
        }

    def _totals(self) -> dict[str, float]:
        totals: dict[str, float] = {}
        for metric in self._ask():
            if metric.name in (HITS, QUERIES, PREEMPTIONS):
                totals[metric.name] = totals.get(metric.name, 0.0) + float(metric.value)
            elif metric.name == FIRST_TOKEN:
                totals[f"{FIRST_TOKEN}:count"] = float(metric.count)
                totals[f"{FIRST_TOKEN}:sum"] = float(metric.sum)
        return totals
