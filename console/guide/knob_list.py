"""The guide's list of knobs: found by our words, or by any trainer's option in any of its versions."""

from collections.abc import Iterator
from functools import cache

from django.utils.translation import get_language
from django.utils.translation import gettext as _

from console.forms.new_run.fields import GROUP_TITLES
from console.guide.knob_detail import knob_detail
from console.guide.other_options import beside, names_of_knobs
from console.guide.parts import (
    Asked,
    Filter,
    GuideRow,
    Section,
    algorithm_filter,
    choice_filter,
    group_title,
    has_words,
    normal,
    words_of,
)
from jobs.catalog.knob import Knob, knobs
from jobs.catalog.trainer import trainers


def knobs_page(query: Asked, knob_id: str) -> dict[str, object]:
    """Return the context of the tab; without a knob in the address, the first that is found is shown.

    Raises: KeyError for a knob that is not there.
    """
    trainer, algorithm = _trainer_filter(query), algorithm_filter(query)
    group = choice_filter(query, "group", _("Group"), [(name, group_title(name)) for name in _groups()])
    listed = [knob for knob in knobs().values() if knob.id in _fitting(trainer.chosen, algorithm.chosen)]
    if group.chosen:
        listed = [knob for knob in listed if knob.group == group.chosen]
    sections = _searched(listed, words_of(query)) if words_of(query) else list(_by_group(listed))
    first = next((section.rows[0].id for section in sections if section.rows), "")
    shown = knob_id or first
    return {
        "filters": (trainer, algorithm, group),
        "sections": sections,
        "found": sum(len(section.rows) for section in sections),
        "all": len(knobs()),
        "beside": beside(words_of(query), trainer.chosen) if words_of(query) else [],
        "knob": knob_detail(knobs()[shown]) if shown else None,
        "current": shown,
    }


def _trainer_filter(query: Asked) -> Filter:
    """Offer every trainer, and every version of those that have several."""
    choices = []
    for info in trainers().values():
        choices.append((info.id, _(info.label)))
        if len(info.versions) > 1:
            choices += [(f"{info.id}:{version}", f"{info.label} {version}") for version in info.versions]
    return choice_filter(query, "trainer", _("Trainer"), choices)


def _groups() -> list[str]:
    there = dict.fromkeys(knob.group for knob in knobs().values())
    return [name for name in GROUP_TITLES if name in there] + [name for name in there if name not in GROUP_TITLES]


@cache
def _fitting(trainer_and_version: str, algorithm: str) -> frozenset[str]:
    """Return the knobs that a trainer has (in a version) for an algorithm; "" stands for any."""
    name, _colon, version = trainer_and_version.partition(":")
    chosen = [trainers()[name]] if name else list(trainers().values())

    def has(knob: Knob) -> bool:
        return any(
            info.offers(each, one) and knob.flag(trainer=info.id, version=one, algorithm=each)
            for info in chosen
            for one in ([version] if version else info.versions)
            for each in ([algorithm] if algorithm else knob.algorithms)
        )

    return frozenset(knob.id for knob in knobs().values() if has(knob))


def _by_group(shown: list[Knob]) -> Iterator[Section]:
    for name in _groups():
        rows = [_row(knob, knob.id) for knob in shown if knob.group == name]
        if rows:
            yield Section(title=group_title(name), rows=rows)


def _searched(shown: list[Knob], words: tuple[str, ...]) -> list[Section]:
    texts = _texts(get_language() or "")
    ranked = []
    for place, knob in enumerate(shown):
        if has_words(texts[knob.id], words):
            rank, code = _rank(knob, words)
            ranked.append((rank, place, _row(knob, code)))
    return [Section(title="", rows=[row for _rank, _place, row in sorted(ranked, key=lambda each: each[:2])])]


def _row(knob: Knob, code: str) -> GuideRow:
    return GuideRow(id=knob.id, label=_(knob.label), caption=code)


def _rank(knob: Knob, words: tuple[str, ...]) -> tuple[int, str]:
    """Return how well a knob answers (0 is best), and the name of it that the words are in."""
    whole = "_".join(words)
    label = normal(_(knob.label))
    if has_words(label, words):
        return (1 if label.startswith(words[0]) else 2), knob.id
    best = (5, knob.id)
    for name in (knob.id, *_names(knob)):
        plain = normal(name)
        if has_words(plain, words) or plain == whole:
            rank = 0 if plain == whole else 1 if plain.rpartition(".")[2] == whole else 3
            best = min(best, (rank, name), key=lambda each: each[0])
    return best


@cache
def _texts(language: str) -> dict[str, str]:  # noqa: ARG001 - what the cache goes by: labels are translated
    """Return what the search looks through, by knob: label, help, id and every option."""
    return {
        knob.id: "\n".join(normal(text) for text in (knob.id, _(knob.label), _(knob.help), *_names(knob)))
        for knob in knobs().values()
    }


@cache
def _beside_flags() -> dict[str, list[str]]:
    return names_of_knobs()


def _names(knob: Knob) -> list[str]:
    """Return every option and key of every trainer and version that sets a knob."""
    return [*(name for flag in knob.flags for name in flag.names), *_beside_flags().get(knob.id, ())]
