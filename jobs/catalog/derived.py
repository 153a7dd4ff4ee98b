"""Quantities that rules reckon with and that no knob holds: one small function each, by dotted name."""

from collections.abc import Callable, Mapping
from typing import Any

from jobs.catalog.algorithm import is_in
from jobs.catalog.placement import group_size, num_engines, pools_of
from jobs.catalog.runspec import RunSpec

Derived = Callable[[RunSpec], Any]


def _total(spec: RunSpec) -> int:
    return spec.num_workers


def _of(role: str) -> Derived:
    return lambda spec: spec.hardware.policy_ranks if spec.is_native else group_size(spec.values(), role)


def _engines(spec: RunSpec) -> int:
    return spec.hardware.rollout_engines if spec.is_native else num_engines(spec.trainer.name, spec.values())


def _pools(spec: RunSpec) -> str:
    found = {"all": spec.num_workers} if spec.is_native else pools_of(spec.trainer.name, spec.algorithm, spec.values())
    return ", ".join(f"{pool} {size}" for pool, size in found.items())


DERIVED: Mapping[str, Derived] = {
    "gpus.total": _total,  # devices of all pools
    "gpus.policy": _of("policy"),
    "gpus.critic": _of("critic"),
    "gpus.reference": _of("reference"),
    "gpus.reward": _of("reward"),
    "gpus.pools": _pools,  # in words
    "rollout.engines": _engines,
    "has.critic": lambda spec: is_in(spec.algorithm, "critic"),
    "has.reference": lambda spec: spec.needs_reference,
    "is.rl": lambda spec: is_in(spec.algorithm, "rl"),
    "is.grouped": lambda spec: is_in(spec.algorithm, "grouped"),
}
