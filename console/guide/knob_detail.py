"""All that the catalogue knows of one knob: meaning, values, every trainer's option, and who else speaks of it."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from django.utils.translation import gettext as _

from console.guide.parts import (
    KnobLink,
    algorithm_words,
    effect_word,
    group_title,
    knob_link,
    shown_text,
    value_text,
    whose,
)
from console.labels.catalog import knob_allowed
from console.labels.rules import rule_title
from jobs.catalog.advice import advice
from jobs.catalog.flag import FORMS, Flag
from jobs.catalog.knob import Knob
from jobs.catalog.recipe import recipes
from jobs.catalog.rules.rule import SpecRule, rules
from jobs.catalog.rules.symptom import symptoms
from jobs.catalog.trainer import trainers
from jobs.catalog.value import Value


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerOption:
    """How versions of a trainer call a knob for some algorithms, and what it is there where nobody chose."""

    whose: str
    names: tuple[str, ...]
    algorithms: str
    default: str
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Mention:
    """Something else in the guide that is about the knob."""

    kind: str
    id: str
    label: str
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnobDetail:
    """One knob as the guide shows it."""

    id: str
    label: str
    group: str
    group_title: str
    help: str
    allowed: str
    unit: str
    algorithms: str
    effects: tuple[tuple[str, str], ...]
    needs: tuple[KnobLink, ...]
    source: str
    options: tuple[TrainerOption, ...]
    mentions: dict[str, tuple[Mention, ...]]
    is_essential: bool
    is_privileged: bool


def knob_detail(knob: Knob) -> KnobDetail:
    """Return what the guide shows of a knob."""
    every = [a for info in trainers().values() for a in info.algorithms]
    return KnobDetail(
        id=knob.id,
        label=_(knob.label),
        group=knob.group,
        group_title=group_title(knob.group),
        help=_(knob.help),
        allowed=knob_allowed(knob),
        unit=shown_text(knob.unit),
        algorithms=algorithm_words(knob.algorithms, list(dict.fromkeys(every))),
        effects=tuple((effect_word(key), _(text)) for key, text in knob.effects.items()),
        needs=tuple(_needs(knob)),
        source=knob.source,
        options=tuple(_options(knob)),
        mentions=_mentions(knob.id),
        is_essential=knob.is_essential,
        is_privileged=knob.is_privileged,
    )


def _needs(knob: Knob) -> Iterator[KnobLink]:
    for need in knob.needs:
        if need.above is not None:
            yield knob_link(need.knob, _("above %(bound)s") % {"bound": f"{need.above:g}"})
        else:
            yield knob_link(need.knob, _(" or ").join(value_text(value) for value in need.values))


def _options(knob: Knob) -> Iterator[TrainerOption]:
    """Yield one entry per trainer, option and default: versions and algorithms that share them stand together."""
    for info in trainers().values():
        grouped: defaultdict[tuple[tuple[str, ...], str, str], dict[str, list[str]]] = defaultdict(dict)
        for version in info.versions:
            for algorithm in info.algorithms:
                flag = knob.flag(trainer=info.id, version=version, algorithm=algorithm)
                if flag and info.offers(algorithm, version):
                    default = value_text(knob.default_for(algorithm, info.id, version))
                    on_gpu = value_text(knob.default_for(algorithm, info.id, version, "cuda"))
                    if on_gpu != default:
                        default = _("%(default)s, on GPU %(on_gpu)s") % {"default": default, "on_gpu": on_gpu}
                    grouped[flag.names, default, _note(knob, flag)].setdefault(version, []).append(algorithm)
        for (names, default, note), by_version in grouped.items():
            alike: defaultdict[str, list[str]] = defaultdict(list)
            for version, chosen in by_version.items():
                among = [a for a in info.algorithms if a in knob.algorithms and info.offers(a, version)]
                alike[algorithm_words(chosen, among)].append(version)
            for words, versions in alike.items():
                yield TrainerOption(
                    whose=whose(info.id, versions), names=names, algorithms=words, default=default, note=note
                )


def _note(knob: Knob, flag: Flag) -> str:
    """Say what is particular about an option: the form of its value, and what it does not take."""
    sentences = []
    if flag.form in FORMS:
        if flag.form != "value":
            sentences.append(_(FORMS[flag.form]))
    else:
        sentences.append(_("converted: %(form)s") % {"form": flag.form.replace("_", " ")})
    here = knob.under(flag)
    if flag.choices and flag.choices != knob.choices:
        sentences.append(_("takes %(choices)s") % {"choices": ", ".join(here.choices)})
    if flag.limits:
        sentences.append(_("takes %(low)s to %(high)s") % {"low": f"{here.low:g}", "high": f"{here.high:g}"})
    return "; ".join(sentences)


def _mentions(knob_id: str) -> dict[str, tuple[Mention, ...]]:
    return {
        "rules": tuple(
            Mention(kind=rule.level, id=rule.id, label=rule_title(rule.id), note=_(rule.level))
            for rule in _rules().get(knob_id, ())
        ),
        "advice": tuple(
            Mention(kind=piece.question, id=piece.id.partition(".")[2], label=_(piece.title), note=shown_text(to))
            for piece, to in ((advice()[name], to) for name, to in _advice().get(knob_id, ()))
        ),
        "symptoms": tuple(
            Mention(kind="symptom", id=name, label=_(symptoms()[name].title)) for name in _symptoms().get(knob_id, ())
        ),
        "recipes": tuple(
            Mention(kind="recipe", id=name, label=_(recipes()[name].label), note=value_text(value))
            for name, value in _recipes().get(knob_id, ())
        ),
    }


@cache
def _rules() -> Mapping[str, list[SpecRule]]:
    by_knob = defaultdict(list)
    for rule in rules().values():
        for name in rule.knobs:
            by_knob[name].append(rule)
    return by_knob


@cache
def _advice() -> Mapping[str, list[tuple[str, str]]]:
    by_knob = defaultdict(list)
    for piece in advice().values():
        for change in piece.changes:
            by_knob[change.knob].append((piece.id, change.to))
    return by_knob


@cache
def _symptoms() -> Mapping[str, list[str]]:
    by_knob: defaultdict[str, dict[str, None]] = defaultdict(dict)
    for symptom in symptoms().values():
        for remedy in symptom.remedies:
            for name in remedy.change:
                by_knob[name][symptom.id] = None
    return {name: list(ids) for name, ids in by_knob.items()}


@cache
def _recipes() -> Mapping[str, list[tuple[str, Value]]]:
    by_knob = defaultdict(list)
    for recipe in recipes().values():
        for name, chosen in recipe.spec.knobs.items():
            if chosen.origin == "recipe":
                by_knob[name].append((recipe.id, chosen.value))
    return by_knob
