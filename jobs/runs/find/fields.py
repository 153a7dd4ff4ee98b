"""What runs can be filtered and sorted by besides any knob, metric and tag."""

from collections.abc import Mapping

from jobs.catalog.algorithm import algorithms, expand

BY_ALGORITHM: Mapping[str, Mapping[str, str]] = {
    "value": {name: info.metric for name, info in algorithms().items()},
    "speed": dict.fromkeys(expand(["rl"]), "throughput/rollout_tokens_per_second")
    | dict.fromkeys(expand(["answers"]), "throughput/update_tokens_per_second"),
}
"""Columns that show another metric for each algorithm: the main metric and the tokens a second."""
WHOLE = {"state": "state", "algorithm": "algorithm", "by": "author", "sweep": "sweep", "trainer": "trainer"}
"""Fields of the filter line whose values are given whole -> their key."""
PARTS = {"name": "name", "model": "model", "data": "data"}
"""Fields of which a part is given -> their key."""
NUMBERS = ("step", "value", "speed", "duration", "created", "started", "ended")
"""Fields that are compared; durations in seconds, moments in seconds since 1970."""
ALWAYS = ("name", "state", "step", "created", "started")
"""Fields of which every run has a value."""
MOMENTS = ("created", "started", "ended")
ROW_SORTS = (
    *("created", "name", "state", "step", "started", "ended", "duration"),
    *("value", "speed", "algorithm", "model", "data", "author"),
)
"""What runs can be sorted by besides any knob id, any metric name and `tag:` with a tag."""


def main_metric(algorithm: str) -> str:
    """Return the one metric that runs of this algorithm are judged by; "" for an algorithm without one."""
    return BY_ALGORITHM["value"].get(algorithm, "")


def is_metric(name: str) -> bool:
    """Return True if `name` is written like a metric; trainers may report more than the dictionary knows."""
    return "/" in name
