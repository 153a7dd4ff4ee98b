"""The columns of the run list: which there are, and what a cell of each says."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from console.labels.catalog import metric_label
from console.labels.numbers import figure
from jobs.catalog.knob import knobs
from jobs.catalog.metric import current_name, metrics
from jobs.runs.filter import BY_ALGORITHM, is_metric, main_metric
from jobs.runs.queries import RunRow

DEFAULT = (
    *("metric", "value", "speed", "step", "elapsed"),
    *("optimizer.learning_rate", "rollout.samples_per_prompt", "algorithm.kl_coefficient"),
    *("model", "devices", "started"),
)
_FIXED: dict[str, tuple[Any, str]] = {
    "metric": (gettext_lazy("Main metric"), ""),
    "value": (gettext_lazy("Last value"), "value"),
    "speed": (gettext_lazy("Tok/s"), "speed"),
    "step": (gettext_lazy("Step"), "step"),
    "elapsed": (gettext_lazy("Elapsed"), "duration"),
    "algorithm": (gettext_lazy("Algorithm"), "algorithm"),
    "model": (gettext_lazy("Model"), "model"),
    "data": (gettext_lazy("Data"), "data"),
    "devices": (gettext_lazy("Devices"), ""),
    "by": (gettext_lazy("By"), "author"),
    "created": (gettext_lazy("Created"), "created"),
    "started": (gettext_lazy("Started"), "started"),
}
_WORDS = ("algorithm", "model", "data", "by", "metric")  # left-aligned; the rest are figures
_SHORT = {
    "rollout.samples_per_prompt": gettext_lazy("Responses n"),
    "algorithm.kl_coefficient": gettext_lazy("KL coef."),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunColumn:
    """A column: `kind` is its key, or knob or metric; `sort` is its sort key, "" where it has none."""

    key: str
    kind: str
    label: str
    title: str
    sort: str
    is_number: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCell:
    """One value of a row: `differs` frames it, `unit` stands small behind it."""

    column: RunColumn
    text: str = "—"
    unit: str = ""
    differs: bool = False


def column(key: str) -> RunColumn | None:
    """Return the column of that key, a knob id or a metric name; None if there is none."""
    key = current_name(key)
    if key in _FIXED:
        label, sort = _FIXED[key]
        return RunColumn(key=key, kind=key, label=str(label), title="", sort=sort, is_number=key not in _WORDS)
    knob = knobs().get(key)
    if knob is not None:
        label = str(_SHORT.get(key) or _(knob.label))
        return RunColumn(key=key, kind="knob", label=label, title=key, sort=key, is_number=True)
    if is_metric(key):
        return RunColumn(key=key, kind="metric-value", label=metric_label(key), title=key, sort=key, is_number=True)
    return None


def chosen(keys: Sequence[str]) -> list[RunColumn]:
    """Return the columns of these keys in their fixed order, without unknown ones; the default ones if none is left."""
    columns = [c for c in (column(key) for key in dict.fromkeys(keys)) if c is not None]
    return sorted(columns, key=_place) or [c for c in (column(key) for key in DEFAULT) if c is not None]


def _place(column: RunColumn) -> tuple[int, int, int]:
    """Return where a column stands: progress, knobs, last values, then the run itself; default ones first."""
    fixed = list(_FIXED)
    group = {"knob": 1, "metric-value": 2}.get(column.kind, 0 if column.kind in DEFAULT[:5] else 3)
    if group in (0, 3):
        return group, fixed.index(column.key), 0
    order = list(knobs()) if group == 1 else list(metrics())
    default = DEFAULT.index(column.key) if column.key in DEFAULT else len(DEFAULT)
    return group, default, order.index(column.key) if column.key in order else len(order)


def choices() -> list[tuple[str, list[RunColumn]]]:
    """Return every column there is, in groups for the chooser."""

    def made(keys: Sequence[str]) -> list[RunColumn]:
        return [c for c in (column(key) for key in keys) if c is not None]

    return [
        (_("Run"), made(list(_FIXED))),
        (_("Knobs"), made(list(knobs()))),
        (_("Last values"), made(list(metrics()))),
    ]


def cells(row: RunRow, columns: Sequence[RunColumn]) -> list[RunCell]:
    """Return the row's cells under these columns."""
    return [_cell(row, column) for column in columns]


def _cell(row: RunRow, column: RunColumn) -> RunCell:
    header = row.header
    if column.kind == "knob":
        return _knob_cell(row, column)
    if column.kind == "metric-value":
        return RunCell(column=column, text=figure(header.latest_values.get(column.key)))
    if column.kind == "value":
        name = main_metric(header.algorithm)
        value = header.latest_values.get(name)
        unit = metric_label(name).lower() if value is not None else ""
        return RunCell(column=column, text=figure(value), unit=unit)
    if column.kind == "speed":
        return RunCell(
            column=column, text=figure(header.latest_values.get(BY_ALGORITHM["speed"].get(header.algorithm, "")))
        )
    if column.kind == "devices":
        if header.num_gpus:
            return RunCell(column=column, text=f"{header.num_gpus:g}", unit="GPU")
        return RunCell(column=column, text=f"{header.num_cpus:g}", unit="CPU")
    texts = {
        "algorithm": header.algorithm.upper(),
        "model": _short(header.model),
        "data": "upload" if header.data.startswith("upload:") else _short(header.data),
        "by": header.author,
    }
    return RunCell(column=column, text=texts.get(column.kind, "") or "—")


def _knob_cell(row: RunRow, column: RunColumn) -> RunCell:
    value = row.knobs.get(column.key)
    if value is None:
        return RunCell(column=column)
    differs = value != knobs()[column.key].default_for(row.header.algorithm)
    return RunCell(column=column, text=knob_text(value), differs=differs)


def knob_text(value: Any) -> str:
    """Write a knob's value as people type it: 1e-6, 0.002, on, cosine."""
    if isinstance(value, bool):
        return _("on") if value else _("off")
    if isinstance(value, float):
        if value == 0 or abs(value) >= 0.001:
            return f"{value:g}"
        digits, _e, exponent = f"{value:.3e}".partition("e")
        return f"{float(digits):g}e{int(exponent)}"
    return str(value)


def _short(name: str) -> str:
    return name.rstrip("/").rpartition("/")[2]
