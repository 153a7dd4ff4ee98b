"""The dictionary of metrics: label, unit, definition and which direction is better, by canonical name."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Literal

from profiling.phases import BY_KEY


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricInfo:
    """What a metric's number says."""

    name: str
    label: str
    unit: str
    better: Literal["higher", "lower", ""]
    definition: str


@cache
def metrics() -> Mapping[str, MetricInfo]:
    """Return the known metrics by canonical name; each phase's seconds are made from the vocabulary of phases."""
    tables = tomllib.loads((files("jobs.catalog") / "metrics.toml").read_text(encoding="utf-8"))
    found = {name: MetricInfo(name=name, **table) for name, table in tables.items()}
    for phase in BY_KEY.values():
        name = f"time/{phase.key}_seconds"
        text = f"Wall time of the phase {phase.label} in the step, on the driver."
        found[name] = MetricInfo(name=name, label=phase.label, unit="s", better="lower", definition=text)
    return found


def metric(name: str) -> MetricInfo:
    """Return what is known of `name`; an unknown one describes itself."""
    return metrics().get(name) or MetricInfo(
        name=name, label=name, unit="", better="", definition="Reported by the trainer."
    )
