"""Which models were trained on which devices: the published configurations, and nothing that is not among them.

`device_table.toml` holds a table per configuration. A question is answered from these rows alone: no row is made up
between two others, and a size that nobody reported has no answer.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from jobs.catalog.tables import file_table

EVIDENCE: Mapping[str, str] = {
    "run": "somebody ran it and reported it",
    "stated": "its authors say so",
    "settings": "its published settings were read",
    "none": "the table has a place for it and no entry",
}
_KEYS = {
    "model",
    "size",
    "mixture",
    "method",
    "num_devices",
    "device",
    "memory_gb",
    "max_batch",
    "train_engine",
    "rollout_engine",
    "settings",
    "notes",
    "evidence",
    "source",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRow:
    """One configuration. `size` is the class of the model in billions of parameters, as the table divides them.

    `is_mixture`: a mixture of experts, whose size says little about one without. `num_devices` is 0 where the source
    has a place for the size and no entry. `max_batch` is the largest batch that was reported, None where none was; it
    is no limit. `settings` are the knobs that matter, by id. `evidence` is run, stated, settings or none: see EVIDENCE.
    """

    id: str
    model: str
    size: float
    is_mixture: bool
    method: str
    num_devices: int
    device: str
    memory_gb: int
    max_batch: int | None
    train_engine: str
    rollout_engine: str
    settings: Mapping[str, Any]
    notes: str
    evidence: str
    source: str


@cache
def device_table() -> Mapping[str, DeviceRow]:
    """Return every row by id, in the order of the file.

    Raises: ValueError, naming the row, for a key or grade of evidence that is not known. That knobs are known and take
    their values is a test's: all knobs are read for it, which takes longer than most answers.
    """
    tables = file_table("device_table")
    return {name: _row(name, table) for name, table in tables.items()}


def rows(
    *, model_billion: float | None = None, method: str | None = None, device: str | None = None
) -> tuple[DeviceRow, ...]:
    """Return the rows that answer a question, the smallest model first, then the fewest devices.

    `method` and `device` are compared as they stand in the table, whatever their case. Of what is left, `model_billion`
    finds the smallest class that is no smaller than the model: what trains a model of 14 billion parameters trains one
    of 8, never the reverse. Names of classes are rounded: one of 70 holds 72.7 billion. A mixture of experts answers
    for its own class alone. No row means that nobody reported it.
    """
    matches = [row for row in device_table().values() if row.num_devices]
    if method is not None:
        matches = [row for row in matches if row.method.lower() == method.lower()]
    if device is not None:
        matches = [row for row in matches if row.device.lower() == device.lower()]
    if model_billion is not None:
        dense = [row.size for row in matches if not row.is_mixture and row.size * _ROUNDED >= model_billion]
        matches = [
            row
            for row in matches
            if (row.size / _ROUNDED <= model_billion <= row.size * _ROUNDED)
            or (not row.is_mixture and row.size == min(dense, default=None))
        ]
    return tuple(sorted(matches, key=lambda row: (row.size, row.num_devices, row.id)))


_ROUNDED = 1.1  # Qwen2.5-7B has 7.6 billion parameters


def _row(name: str, table: Mapping[str, Any]) -> DeviceRow:
    if strange := sorted(set(table) - _KEYS):
        raise ValueError(f"{name}: a row has no key {strange[0]!r}. Known: {', '.join(sorted(_KEYS))}.")
    if table["evidence"] not in EVIDENCE:
        raise ValueError(f"{name}: {table['evidence']!r} is no grade of evidence. Use {', '.join(EVIDENCE)}.")
    return DeviceRow(
        id=name,
        model=table.get("model", ""),
        size=float(table["size"]),
        is_mixture=table.get("mixture", False),
        method=table.get("method", ""),
        num_devices=table.get("num_devices", 0),
        device=table.get("device", ""),
        memory_gb=table.get("memory_gb", 0),
        max_batch=table.get("max_batch"),
        train_engine=table.get("train_engine", ""),
        rollout_engine=table.get("rollout_engine", ""),
        settings=table.get("settings", {}),
        notes=table.get("notes", ""),
        evidence=table["evidence"],
        source=table["source"],
    )
