"""What is told of vLLM's own metrics; real ones are read in test_ranks.py's runs."""

from types import SimpleNamespace
from typing import Any

import pytest

from jobs.engine.roles import vllm_meter
from jobs.engine.roles.vllm_meter import VllmMeter


class Engine:
    """Metrics that a test sets."""

    def __init__(self) -> None:
        self.values: dict[str, float] = {}
        self.first_token = (0, 0.0)

    def metrics(self) -> list[Any]:
        count, total = self.first_token
        histogram = SimpleNamespace(name="vllm:time_to_first_token_seconds", count=count, sum=total)
        return [SimpleNamespace(name=f"vllm:{name}", value=value) for name, value in self.values.items()] + [histogram]


def test_counters_are_told_as_what_was_added() -> None:
    engine = Engine()
    engine.values = {"num_preemptions": 5, "prefix_cache_hits": 10, "prefix_cache_queries": 100}
    meter = VllmMeter(engine.metrics)
    engine.values = {"num_preemptions": 7, "prefix_cache_hits": 40, "prefix_cache_queries": 140}
    engine.first_token = (4, 2.0)

    assert meter.readings() == {
        "preemptions": 2.0,
        "prefix_cache_hit_percent": 75.0,
        "time_to_first_token_seconds": 0.5,
    }
    assert meter.readings() == {"preemptions": 0.0}


def test_gauges_are_told_as_their_peak_while_it_generates() -> None:
    meter = VllmMeter(Engine().metrics)

    for running, waiting, share in ((8, 3, 0.125), (6, 5, 0.25), (0, 0, 0.0)):
        meter.record(SimpleNamespace(num_running_reqs=running, num_waiting_reqs=waiting, kv_cache_usage=share), None)
    meter.record(None, None)

    found = meter.readings()
    assert (found["running_requests"], found["waiting_requests"], found["kv_cache_percent"]) == (8.0, 5.0, 25.0)
    assert "running_requests" not in meter.readings()


def test_how_full_its_batches_are_is_told_over_time(monkeypatch: pytest.MonkeyPatch) -> None:
    moments = iter([10.0, 11.0, 13.0, 23.0, 30.0, 31.0])
    monkeypatch.setattr(vllm_meter.time, "perf_counter", lambda: next(moments))
    meter = VllmMeter(Engine().metrics)

    for running in (16, 16, 8, 2):  # the first pass has no beginning; then 1 s of 16, 2 s of 8, 10 s of 2
        meter.record(SimpleNamespace(num_running_reqs=running, num_waiting_reqs=0, kv_cache_usage=0.1), None)

    found = meter.readings()
    assert found["running_requests_mean"] == pytest.approx((16 + 2 * 8 + 10 * 2) / 13)
    assert found["nearly_empty_percent"] == pytest.approx(100 * 10 / 13)
    for running in (4, 4):  # the time between two rollouts belongs to none
        meter.record(SimpleNamespace(num_running_reqs=running, num_waiting_reqs=0, kv_cache_usage=0.1), None)
    assert meter.readings()["nearly_empty_percent"] == 0
