"""What a trace of torch says of itself, at its beginning or its end: versions, devices, the rank and its groups."""

from collections.abc import Mapping

from profiling.trace.writer import StoreWriter

_FACTS = (
    "host_name", "schemaVersion", "record_shapes", "with_stack", "profile_memory", "with_flops",
    "cuda_driver_version", "cuda_runtime_version", "hip_driver_version", "hip_runtime_version",
)  # fmt: skip
"""What is kept of it as it stands."""
_MOST_DEVICES = 64
_MOST_GROUPS = 256


def base_of(facts: Mapping[str, object]) -> int:
    """Return the moment from which times count [Unix ns], 0 if nothing tells one."""
    value = facts.get("baseTimeNanoseconds")
    return value if isinstance(value, int) and 0 < value < 1 << 62 else 0


def keep_facts(writer: StoreWriter, facts: Mapping[str, object]) -> None:
    """Keep them in a store."""
    distributed = facts.get("distributedInfo")
    if isinstance(distributed, dict):
        for key in ("backend", "rank", "world_size"):
            if isinstance(distributed.get(key), str | int):
                writer.meta(key, distributed[key])
        writer.meta("groups", _short_each(distributed.get("pg_config"), _MOST_GROUPS))
    writer.meta("devices", _short_each(facts.get("deviceProperties", facts.get("computeProperties")), _MOST_DEVICES))
    for key in _FACTS:
        if isinstance(facts.get(key), str | int | float):
            writer.meta(key, facts[key])


def _short_each(values: object, most: int) -> list[dict[str, str | float]]:
    return [_short(each) for each in values[:most]] if isinstance(values, list) else []


def _short(value: object) -> dict[str, str | float]:
    """Return the plain facts of an object."""
    if not isinstance(value, dict):
        return {}
    return {
        str(k)[:100]: v[:500] if isinstance(v, str) else v for k, v in value.items() if isinstance(v, str | int | float)
    }
