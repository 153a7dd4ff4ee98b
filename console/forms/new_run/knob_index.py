"""All that is known of every knob, for the New run page's search and help: whoever chose what trainer, all is found.

Found are also the fields of the form that are no knobs, by any trainer's option or key for them, and what no run has to
say, with the reason. The page asks for it once, when somebody searches or wants to read: it depends on the language
alone.
"""

from collections.abc import Iterable, Iterator
from functools import cache
from typing import NotRequired, TypedDict

from django.utils.translation import gettext as _

from console.labels.catalog import field_label, knob_allowed
from jobs.adapters.adapter import OptionName, adapter
from jobs.catalog.algorithm import algorithms
from jobs.catalog.flag import Flag
from jobs.catalog.knob import Knob, knobs
from jobs.catalog.spec.runspec import SECTIONS
from jobs.catalog.trainer import as_version, trainers


class OptionEntry(TypedDict):
    """Whose option or key it is, and the versions and algorithms that have it; `why` no run has to say it."""

    trainer: str
    name: str
    versions: list[str]
    algorithms: list[str]
    whose: NotRequired[str]
    why: NotRequired[str]


def knob_index() -> dict[str, object]:
    """Return what the search looks through.

    `knobs`: label, help, range, effects, source and every trainer's option of each, by the input's name; `fields`:
    label and options of the rest of the form, by dotted name; `told`: options and keys that are neither, with the
    reason.
    """
    beside = _beside_flags()
    return {
        "knobs": {f"knobs.{knob.id}": _knob(knob, beside.get(knob.id, [])) for knob in knobs().values()},
        "fields": {name: _field(name, beside.get(name, [])) for name in _field_names()},
        "told": _without_field(),
    }


def _field_names() -> Iterator[str]:
    yield from ("name", "algorithm")
    for section, cls in SECTIONS.items():
        yield from (f"{section}.{field}" for field in cls.model_fields)


def _knob(knob: Knob, beside: list[tuple[str, str, str]]) -> dict[str, object]:
    return {
        "label": _(knob.label),
        "help": _(knob.help),
        "allowed": knob_allowed(knob),
        "unit": _(knob.unit) if knob.unit else "",
        "effects": [(_effect(key), _(text)) for key, text in knob.effects.items()],
        "source": knob.source,
        "privileged": knob.is_privileged,
        "algorithms": list(knob.algorithms),
        "flags": _options(knob, beside),
    }


def _field(name: str, beside: list[tuple[str, str, str]]) -> dict[str, object]:
    entries: dict[tuple[str, str], OptionEntry] = {}
    for trainer, version, option in beside:
        _add(entries, trainer, option, [version], algorithms())
    return {"label": field_label(name), "flags": _with_owner(entries)}


def _effect(key: str) -> str:
    return {"memory": _("Memory"), "speed": _("Speed"), "stability": _("Stability")}.get(key, key)


def _options(knob: Knob, beside: list[tuple[str, str, str]]) -> list[OptionEntry]:
    """Return who calls it what, in which versions: one entry per name, the newest first."""
    entries: dict[tuple[str, str], OptionEntry] = {}
    for flag in knob.flags:
        for name in flag.names:
            _add(entries, flag.trainer, name, _versions(flag), flag.algorithms or knob.algorithms)
    for trainer, version, name in beside:
        _add(entries, trainer, name, [version], knob.algorithms)
    return _with_owner(entries)


def _add(
    entries: dict[tuple[str, str], OptionEntry], trainer: str, name: str, versions: list[str], algorithms: Iterable[str]
) -> None:
    entry = entries.setdefault((trainer, name), {"trainer": trainer, "name": name, "versions": [], "algorithms": []})
    entry["versions"] = _in_order(trainer, [*entry["versions"], *versions])
    entry["algorithms"] = list(dict.fromkeys([*entry["algorithms"], *algorithms]))


def _with_owner(entries: dict[tuple[str, str], OptionEntry]) -> list[OptionEntry]:
    for entry in entries.values():
        entry["whose"] = _whose(entry["trainer"], entry["versions"])
    return list(entries.values())


@cache
def all_option_names() -> tuple[tuple[str, str, OptionName], ...]:
    """Return trainer, version and each option that is no knob's flag."""
    return tuple(
        (info.id, version, option)
        for info in trainers().values()
        for version in info.versions
        for option in adapter(info.id).option_names(version=version)
    )


def _beside_flags() -> dict[str, list[tuple[str, str, str]]]:
    """Return trainer, version and name of every such option, by the knob or field that holds what it says."""
    by_field: dict[str, list[tuple[str, str, str]]] = {}
    for trainer, version, option in all_option_names():
        for name in option.spec_fields:
            by_field.setdefault(name, []).append((trainer, version, option.name))
    return by_field


def _without_field() -> list[OptionEntry]:
    """Return the options and keys that no run says, each with the reason."""
    entries: dict[tuple[str, str], OptionEntry] = {}
    for trainer, version, option in all_option_names():
        if not option.spec_fields:
            _add(entries, trainer, option.name, [version], ())
            entries[trainer, option.name]["why"] = _(option.why)
    return _with_owner(entries)


def _versions(flag: Flag) -> list[str]:
    since, before = as_version(flag.since), as_version(flag.before)
    every = trainers()[flag.trainer].versions
    return [v for v in every if as_version(v) >= since and (not before or as_version(v) < before)]


def _in_order(trainer: str, versions: Iterable[str]) -> list[str]:
    wanted = set(versions)
    return [v for v in trainers()[trainer].versions if v in wanted]


def _whose(trainer: str, versions: list[str]) -> str:
    info = trainers()[trainer]
    if len(versions) == len(info.versions) and len(versions) != 1:
        return _(info.label)
    return f"{_(info.label)} {', '.join(versions)}".rstrip()
