"""What the pages of the guide are made of: rows of a list, filters that stand in the address, and words they share."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from django.utils.translation import gettext as _

from console.forms.new_run.fields import GROUP_TITLES
from jobs.catalog.algorithm import algorithms, is_in
from jobs.catalog.knob import knobs
from jobs.catalog.trainer import trainers
from jobs.catalog.value import Value

Asked = Mapping[str, str]
"""The values of an address's query, by name."""

_WORTH_A_WORD = 3
"""From so many algorithms of RL on, they are named together."""

_BRACES = re.compile(r"\{([^{}]+)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class GuideRow:
    """One thing in a list: `caption` is the id or flag by which it was found, or whose it is; `level` a rule's."""

    id: str
    label: str
    caption: str
    level: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """Rows under a heading."""

    title: str
    rows: Sequence[GuideRow]


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """A choice that narrows a list; `chosen` is "" where nothing is chosen."""

    name: str
    label: str
    choices: Sequence[tuple[str, str]]
    chosen: str

    @property
    def query(self) -> str:
        """What keeps the choice in an address that has a query already; empty without one."""
        return f"&{self.name}={self.chosen}" if self.chosen else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnobLink:
    """A knob that a text speaks of, and what becomes of it there."""

    id: str
    label: str
    to: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextPart:
    """A piece of a text that has values in it: plain words, or the expression that stands for a value."""

    text: str
    is_code: bool


def shown_text(text: str) -> str:
    """Return a text of the catalogue in the reader's language; gettext would answer "" with its own header."""
    return _(text) if text else ""


def choice_filter(query: Asked, name: str, label: str, choices: Iterable[tuple[str, str]]) -> Filter:
    """Return a filter as the address has it; a value that is not among the choices is none."""
    offered = list(choices)
    value = query.get(name, "")
    return Filter(name=name, label=label, choices=offered, chosen=value if value in dict(offered) else "")


def trainer_filter(query: Asked) -> Filter:
    """Return the filter by trainer."""
    return choice_filter(query, "trainer", _("Trainer"), [(t.id, _(t.label)) for t in trainers().values()])


def algorithm_filter(query: Asked) -> Filter:
    """Return the filter by algorithm."""
    return choice_filter(query, "algorithm", _("Algorithm"), [(a.id, _(a.label)) for a in algorithms().values()])


def words_of(query: Asked) -> tuple[str, ...]:
    """Return what the address searches for, word by word, as `normal` writes them."""
    return tuple(filter(None, (normal(word) for word in query.get("q", "")[:200].split()[:8])))


def normal(text: str) -> str:
    """Return a text as the search compares it: no case, no dashes before a flag, no value behind it."""
    return text.lower().partition("=")[0].lstrip("-+").replace("-", "_")


def has_words(text: str, words: Iterable[str]) -> bool:
    """Return True if every word stands somewhere in a text that `normal` has written."""
    return all(word in text for word in words)


def group_title(group: str) -> str:
    """Return what people call a group of knobs, rules or symptoms."""
    own = {
        "batch": _("Batch arithmetic"),
        "kl": _("KL term"),
        "wandb": "W&B",
        "start": _("Does not start"),
        "speed": _("Speed"),
        "learning": _("Learning"),
    }
    return own.get(group) or str(GROUP_TITLES.get(group, group.replace("_", " ").capitalize()))


def value_text(value: Value) -> str:
    """Return a knob's value in words: not set, on, off, empty, 12,480, 3e-4."""
    if value is None:
        return _("not set")
    if isinstance(value, bool):
        return _("on") if value else _("off")
    if isinstance(value, str):
        return value.replace("\n", "\\n") or _("empty")
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


def trainer_words(names: Iterable[str]) -> str:
    """Name trainers; all of them where none is named."""
    return ", ".join(_(trainers()[name].label) for name in names) or _("all trainers")


def whose(trainer: str, versions: Sequence[str]) -> str:
    """Name a trainer with those of its versions that are meant."""
    info = trainers()[trainer]
    if info.versions == ("",):
        return _(info.label)
    every = len(versions) == len(info.versions) > 1
    named = _("all versions") if every else ", ".join(versions)
    return f"{info.label} {named}"


def algorithm_words(names: Iterable[str], among: Sequence[str]) -> str:
    """Name algorithms; "" where they are all of those that come into question, one word where they are all of RL."""
    listed = list(names)
    if len(listed) == len(among):
        return ""
    rl = [name for name in among if is_in(name, "rl")]
    chosen = [name for name in listed if name in rl]
    missing = [name for name in rl if name not in chosen]
    labels = [_(algorithms()[name].label) for name in listed]
    if len(chosen) >= _WORTH_A_WORD and len(missing) <= 2:
        but = _("RL but %(names)s") % {"names": _(" and ").join(_(algorithms()[name].label) for name in missing)}
        rest = [_(algorithms()[name].label) for name in listed if name not in rl]
        labels = [but if missing else _("RL"), *rest]
    return ", ".join(labels)


def effect_word(key: str) -> str:
    """Return what people call an effect."""
    return {"memory": _("Memory"), "speed": _("Speed"), "stability": _("Stability")}.get(key, key)


def knob_link(name: str, to: str = "") -> KnobLink:
    """Return the link to a knob; a field of the spec that is no knob has its name and leads nowhere."""
    knob = knobs().get(name)
    return KnobLink(id=name if knob else "", label=_(knob.label) if knob else name, to=to)


def parts_of(text: str) -> list[TextPart]:
    """Return a text piece by piece: what stands in braces is an expression."""
    pieces = _BRACES.split(text)
    return [TextPart(text=piece, is_code=bool(i % 2)) for i, piece in enumerate(pieces) if piece]
