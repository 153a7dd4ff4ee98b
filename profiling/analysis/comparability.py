"""May two captures be held against each other? Asked before any difference is believed.

The answer is a product of factors between 0 and 1, each with what it was computed from, so that a refusal can say why.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from profiling.analysis.intervals import Intervals
from profiling.analysis.work import Events, WorkerEvents
from profiling.analysis.workers import device_name
from profiling.trace.category import Category

if TYPE_CHECKING:
    from profiling.trace.store import Store

ENOUGH = 0.5
"""Below it two captures cannot be compared."""
OTHER_DEVICE = 0.6
"""The factor of two device models: times of equal kernels differ by more than most changes make."""
FEW_NAMES = 5
"""Up to so many names a share of them says nothing."""
MOST_TOLD = 3

FactorKey = Literal["device", "source", "work", "calls", "names"]
"""device: the model. source: the tool and the generation of its format. work: something ran. calls: how many kernels
(operators, without a device) a unit has. names: how many of their names both have."""

_VERSIONS = ("tool_version", "cuda_driver_version", "cuda_runtime_version", "hip_runtime_version", "world_size")
"""What a trace may say of its software and size, under the keys of a store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SideFacts:
    """What is compared of a capture before its times are. `calls` and `names` are those of its kernels, else of its
    operators; `identity` tells the same recording from another one.
    """

    device: str
    source: str
    schema: str
    versions: Mapping[str, str]
    has_device: bool
    calls: int
    names: frozenset[str]
    identity: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Factor:
    """One reason; `before` and `after` are what each side has of it."""

    key: FactorKey
    value: float
    before: str
    after: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparability:
    """`score` is the product of all factors; `lowered` are those below 1, the lowest first. `devices`, and `versions`
    by key: what both sides tell, where they differ. `is_same`: both sides are the same part of one recording.
    """

    score: float
    lowered: tuple[Factor, ...]
    devices: tuple[str, str]
    versions: Mapping[str, tuple[str, str]]
    is_same: bool

    @property
    def is_enough(self) -> bool:
        """Return False where the two cannot be compared."""
        return self.score >= ENOUGH


def facts_of(work: WorkerEvents, store: "Store", whole: Intervals) -> SideFacts:
    """Return what is known of a worker of a store; its calls are those that begin within `whole`."""
    events = _calls(work)
    inside = events.take(whole.contains(events.ts))
    schema = str(store.meta.get("schema_version", store.meta.get("schemaVersion", "")))
    bounds = (int(whole.begin[0]), int(whole.end[-1])) if len(whole) else (0, 0)
    return SideFacts(
        device=device_name(work, store),
        source=str(store.meta.get("tool", store.meta.get("source", ""))),
        schema=schema.partition(".")[0],
        versions={key: str(store.meta[key]) for key in _VERSIONS if store.meta.get(key) not in (None, "")},
        has_device=work.has_device,
        calls=len(inside),
        names=frozenset(work.name(number) for number in np.unique(inside.name).tolist()),
        identity=(
            *(store.begin, store.end, store.facts.events, store.facts.names, *bounds),
            *(len(work.events), int(work.events.dur.sum())),
        ),
    )


def _calls(work: WorkerEvents) -> Events:
    if work.has_device:
        return work.device.of(Category.KERNEL, Category.COMMUNICATION)
    return work.operators


def comparability(one: SideFacts, other: SideFacts, units: tuple[float, float]) -> Comparability:
    """Return how far two captures can be compared, with so many units (steps, say) each."""
    factors = [
        _factor("device", OTHER_DEVICE if _differ(one.device, other.device) else 1.0, one.device, other.device),
        _factor("source", float(_is_same_source(one, other)), _source(one), _source(other)),
        _factor(
            "work",
            float(bool(one.calls and other.calls) and one.has_device == other.has_device),
            _work(one),
            _work(other),
        ),
    ]
    calls = [side.calls / n for side, n in zip((one, other), units, strict=True)]
    factors.append(_factor("calls", _ratio(*calls), f"{calls[0]:,.0f}", f"{calls[1]:,.0f}"))
    fewer = min(len(one.names), len(other.names))
    if fewer > FEW_NAMES:
        common = len(one.names & other.names)
        factors.append(_factor("names", common / fewer, f"{len(one.names):,}", f"{len(other.names):,}"))
    both = sorted(one.versions.keys() & other.versions.keys())
    return Comparability(
        score=float(np.prod([factor.value for factor in factors])),
        lowered=tuple(sorted((factor for factor in factors if factor.value < 1), key=lambda factor: factor.value)),
        devices=(one.device, other.device),
        versions={
            key: (one.versions[key], other.versions[key]) for key in both if one.versions[key] != other.versions[key]
        },
        is_same=one == other,
    )


def _factor(key: FactorKey, value: float, before: str, after: str) -> Factor:
    return Factor(key=key, value=value, before=before, after=after)


def _differ(one: str, other: str) -> bool:
    return bool(one and other) and one != other


def _is_same_source(one: SideFacts, other: SideFacts) -> bool:
    return one.source == other.source and not _differ(one.schema, other.schema)


def _source(side: SideFacts) -> str:
    return f"{side.source} {side.schema}".strip()


def _work(side: SideFacts) -> str:
    return "" if not side.calls else "device" if side.has_device else "cpu"


def _ratio(one: float, other: float) -> float:
    return min(one, other) / max(one, other) if max(one, other) > 0 else 0.0
