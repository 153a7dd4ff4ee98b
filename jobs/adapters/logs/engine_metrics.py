"""What rollout engines measure of their own work, asked of their servers' `/metrics` while a run trains.

vLLM and SGLang write Prometheus's text there. Gauges are what the server says at that moment; counters and histograms
are told as what was added since the last answer. Names are those of our own engine's readings
(jobs/engine/roles/vllm_meter.py).

Sources: vllm/v1/metrics/loggers.py; SGLang 0.5.23 srt/observability/metrics_collector.py.
"""

import re
import threading
import time
import urllib.request
from collections.abc import Mapping, Sequence

from profiling import events
from profiling.events import Event

LOOK_SECONDS = 5.0
ANSWER_SECONDS = 2.0
MOST_BYTES = 4 << 20
ROLE = "vllm"  # as the role that generates is called here, whichever engine does
_LINE = re.compile(r"^(\w+:\w+)(\{[^}]*\})?[ \t]+(\S+)", re.MULTILINE)
_OF_ONE_PRIORITY = re.compile(r'[{,]priority="[^"]')  # which SGLang writes beside the total of all, priority=""
_COUNTERS = ("_total", "_sum", "_count")
_GAUGES: Mapping[str, tuple[str, float]] = {
    "vllm:num_requests_running": ("running_requests", 1.0),
    "vllm:num_requests_waiting": ("waiting_requests", 1.0),
    "vllm:kv_cache_usage_perc": ("kv_cache_percent", 100.0),
    "vllm:gpu_cache_usage_perc": ("kv_cache_percent", 100.0),  # until vLLM 0.9
    "sglang:num_running_reqs": ("running_requests", 1.0),
    "sglang:num_queue_reqs": ("waiting_requests", 1.0),
    "sglang:token_usage": ("kv_cache_percent", 100.0),
    "sglang:cache_hit_rate": ("prefix_cache_hit_percent", 100.0),
    "sglang:gen_throughput": ("generated_tokens_per_second", 1.0),
}
_HIGHEST = ("kv_cache_percent", "prefix_cache_hit_percent")
"""Of several engines behind one address the highest is told; everything else is added up."""


def numbers_of(text: str) -> dict[str, float]:
    """Return the values of Prometheus's text by name: of several labels their sum, of fractions the highest."""
    numbers: dict[str, float] = {}
    for name, labels, written in _LINE.findall(text):
        if _OF_ONE_PRIORITY.search(labels):
            continue
        try:
            value = float(written)
        except ValueError:
            continue
        is_highest = name in _GAUGES and _GAUGES[name][0] in _HIGHEST
        numbers[name] = max(value, numbers.get(name, 0.0)) if is_highest else numbers.get(name, 0.0) + value
    return numbers


def readings(now: Mapping[str, float], before: Mapping[str, float], seconds: float) -> dict[str, float]:
    """Return readings of two answers that are `seconds` apart; of the first one, with `before` empty, gauges alone."""
    values = {ours: now[name] * factor for name, (ours, factor) in _GAUGES.items() if name in now}
    added = {name: now[name] - before[name] for name in now if name.endswith(_COUNTERS) and name in before}
    if any(change < 0 for change in added.values()):  # the server was started anew
        return values
    for name in ("vllm:num_preemptions_total", "sglang:num_retracted_requests_total"):
        if name in added:
            values["preemptions"] = added[name]
    if queries := added.get("vllm:prefix_cache_queries_total"):
        values["prefix_cache_hit_percent"] = 100.0 * added.get("vllm:prefix_cache_hits_total", 0.0) / queries
    if "vllm:generation_tokens_total" in added and seconds > 0:
        values["generated_tokens_per_second"] = added["vllm:generation_tokens_total"] / seconds
    for engine in ("vllm", "sglang"):
        first = f"{engine}:time_to_first_token_seconds"
        if count := added.get(f"{first}_count"):
            values["time_to_first_token_seconds"] = added.get(f"{first}_sum", 0.0) / count
    return values


class EngineMetrics:
    """Asks servers in a thread of its own, so that one that does not answer holds up nothing."""

    def __init__(self) -> None:
        self._addresses: tuple[str, ...] = ()
        self._lock = threading.Lock()
        self._events: list[Event] = []
        self._before: dict[str, tuple[float, dict[str, float]]] = {}
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def watch(self, addresses: Sequence[str]) -> None:
        """Ask these servers (`host:port`) from now on, in place of earlier ones; the place is the engine's rank."""
        is_first = not self._addresses
        self._addresses = tuple(addresses)
        if is_first and self._addresses:
            threading.Thread(target=self._look_on, name="engine-metrics", daemon=True).start()

    @property
    def is_watching(self) -> bool:
        """True once there are servers to ask."""
        return bool(self._addresses)

    def events(self) -> list[Event]:
        """Return what was read since the last call."""
        with self._lock:
            new, self._events = self._events, []
        return new

    def look(self) -> None:
        """Ask every server once; one that does not answer, or has no metrics, is left out."""
        for rank, address in enumerate(self._addresses):
            try:
                with self._opener.open(f"http://{address}/metrics", timeout=ANSWER_SECONDS) as answer:
                    numbers = numbers_of(answer.read(MOST_BYTES).decode("utf-8", "replace"))
            except (OSError, ValueError):
                continue
            moment = time.monotonic()
            at, before = self._before.get(address, (moment, {}))
            self._before[address] = (moment, numbers)
            if values := readings(numbers, before, moment - at):
                with self._lock:
                    self._events.append(events.system(values, attempt=0, role=ROLE, rank=rank))

    def _look_on(self) -> None:
        while True:
            self.look()
            time.sleep(LOOK_SECONDS)
