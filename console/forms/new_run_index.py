"""All that is known of every knob, for the New run page's search and help: whoever chose what trainer, all is found.

The page asks for it once, when somebody searches or wants to read: it depends on the language alone.
"""

from collections.abc import Iterable
from typing import Any

from django.utils.translation import gettext as _

from console.catalog_words import knob_allowed
from jobs.catalog.flag import Flag
from jobs.catalog.knob import Knob, knobs
from jobs.catalog.trainer import as_version, trainers


def knob_index() -> dict[str, Any]:
    """Return label, help, range, effects, source and every trainer's spelling of each knob, by the input's name."""
    return {f"knobs.{knob.id}": _knob(knob) for knob in knobs().values()}


def _knob(knob: Knob) -> dict[str, Any]:
    return {
        "label": _(knob.label),
        "help": _(knob.help),
        "allowed": knob_allowed(knob),
        "unit": _(knob.unit) if knob.unit else "",
        "effects": [(_effect(key), _(text)) for key, text in knob.effects.items()],
        "source": knob.source,
        "privileged": knob.is_privileged,
        "algorithms": list(knob.algorithms),
        "flags": _spellings(knob),
    }


def _effect(key: str) -> str:
    return {"memory": _("Memory"), "speed": _("Speed"), "stability": _("Stability")}.get(key, key)


def _spellings(knob: Knob) -> list[dict[str, Any]]:
    """Return who spells it how, in which versions: one entry per name, the newest first."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for flag in knob.flags:
        versions = _versions(flag)
        for name in flag.names:
            entry = found.setdefault((flag.trainer, name), {"trainer": flag.trainer, "name": name, "versions": []})
            entry["versions"] = _in_order(flag.trainer, [*entry["versions"], *versions])
            entry.setdefault("algorithms", []).extend(flag.algorithms or knob.algorithms)
    for entry in found.values():
        entry["algorithms"] = list(dict.fromkeys(entry["algorithms"]))
        entry["whose"] = _whose(entry["trainer"], entry["versions"])
    return list(found.values())


def _versions(flag: Flag) -> list[str]:
    since, before = as_version(flag.since), as_version(flag.before)
    known = trainers()[flag.trainer].versions
    return [v for v in known if as_version(v) >= since and (not before or as_version(v) < before)]


def _in_order(trainer: str, versions: Iterable[str]) -> list[str]:
    given = set(versions)
    return [v for v in trainers()[trainer].versions if v in given]


def _whose(trainer: str, versions: list[str]) -> str:
    info = trainers()[trainer]
    if len(versions) == len(info.versions) and len(versions) != 1:
        return _(info.label)
    return f"{_(info.label)} {', '.join(versions)}".rstrip()
