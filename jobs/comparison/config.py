"""In which settings runs differ, and who chose each value. No database."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from jobs.catalog.knob import knobs
from jobs.catalog.spec.parse import SpecInvalid, parse_spec
from jobs.catalog.spec.runspec import SECTIONS, Origin, RunSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One value of one run; `origin` is default, recipe, you or tuner."""

    value: Any
    origin: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingRow:
    """A knob or a field of the spec over all runs, in their order; None where it does not apply to the run."""

    id: str
    settings: tuple[Setting | None, ...]
    is_different: bool


def settings_of(raw: Mapping[str, Any]) -> dict[str, Setting]:
    """Return every knob and field of a stored spec by its dotted id, the name apart.

    A spec of an older console is completed by today's defaults, as the run's own page shows it; what cannot be read is
    shown as it was stored.
    """
    try:
        return _of_spec(parse_spec(raw))
    except SpecInvalid:
        return dict(_plain(raw, ""))


def _of_spec(spec: RunSpec) -> dict[str, Setting]:
    default = parse_spec({"algorithm": spec.algorithm})
    settings = {"algorithm": Setting(value=spec.algorithm, origin="you")}
    for section in SECTIONS:
        ours, theirs = getattr(spec, section), getattr(default, section)
        for field, value in ours:
            origin = "default" if value == getattr(theirs, field) else "you"
            settings[f"{section}.{field}"] = Setting(value=value, origin=origin)
    for knob_id, chosen in spec.knobs.items():
        settings[knob_id] = Setting(value=chosen.value, origin=chosen.origin)
    return settings


def _plain(raw: Mapping[str, Any], prefix: str) -> list[tuple[str, Setting]]:
    settings: list[tuple[str, Setting]] = []
    for key, value in raw.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and set(value) == {"value", "origin"}:
            origin = value["origin"] if value["origin"] in get_args(Origin) else "you"
            settings.append((name.removeprefix("knobs."), Setting(value=value["value"], origin=origin)))
        elif isinstance(value, Mapping):
            settings += _plain(value, f"{name}.")
        elif name != "name":
            settings.append((name, Setting(value=value, origin="you")))
    return settings


def setting_rows(specs: Sequence[Mapping[str, Any]], *, base: int) -> tuple[SettingRow, ...]:
    """Return all settings of the runs with these stored specs: the catalogue's knobs first, in its order.

    A row is different if any run's value is not the one of run `base` (its place in `specs`).
    """
    all_settings = [settings_of(spec) for spec in specs]
    names = dict.fromkeys(name for settings in all_settings for name in settings)
    catalog = {knob_id: place for place, knob_id in enumerate(knobs())}
    ordered = sorted(names, key=lambda name: catalog.get(name, -1 if name == "algorithm" else len(catalog)))
    rows = []
    for name in ordered:
        values = tuple(settings.get(name) for settings in all_settings)
        rows.append(
            SettingRow(id=name, settings=values, is_different=any(is_other(value, values[base]) for value in values))
        )
    return tuple(rows)


def is_other(one: Setting | None, base: Setting | None) -> bool:
    """Return True if the two hold another value, whoever chose it: 1 and true are not the same, nor is none at all."""
    if one is None or base is None:
        return one is not base
    return one.value != base.value or isinstance(one.value, bool) != isinstance(base.value, bool)
