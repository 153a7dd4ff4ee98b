"""The guide's rules: when each applies, what it says, why, and what would mend it."""

from collections.abc import Iterator
from dataclasses import dataclass

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from console.guide.parts import (
    Asked,
    GuideRow,
    KnobLink,
    Section,
    TextPart,
    algorithm_words,
    choice_filter,
    group_title,
    has_words,
    knob_link,
    parts_of,
    trainer_filter,
    trainer_words,
    words_of,
)
from console.labels.rules import rule_title
from jobs.catalog.algorithm import algorithms
from jobs.catalog.rules.rule import KINDS, LEVELS, SpecRule, rules

_LEVELS = {
    "error": gettext_noop("Errors: cannot run, or trains wrongly"),
    "warning": gettext_noop("Warnings: likely disappoints"),
    "note": gettext_noop("Notes: good to know"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleDetail:
    """A rule as the guide shows it; `says` and `why` are in parts: expressions stand out."""

    id: str
    title: str
    level: str
    level_word: str
    level_words: str
    message: list[TextPart]
    why: list[TextPart]
    when: str
    knobs: list[KnobLink]
    fixes: list[list[KnobLink]]
    trainers: str
    since: str
    before: str
    algorithms: str
    kind: str
    source: str


def rules_page(query: Asked, rule_id: str) -> dict[str, object]:
    """Return the context of the tab. Raises: KeyError for a rule that is not there."""
    level = choice_filter(query, "level", _("Level"), [(name, _(_LEVELS[name])) for name in LEVELS])
    trainer = trainer_filter(query)
    groups = dict.fromkeys(_group(rule) for rule in rules().values())
    group = choice_filter(query, "group", _("Group"), [(name, group_title(name)) for name in groups])
    listed = [
        rule
        for rule in rules().values()
        if level.chosen in ("", rule.level)
        and (not trainer.chosen or not rule.trainers or trainer.chosen in rule.trainers)
        and group.chosen in ("", _group(rule))
        and has_words(_text(rule), words_of(query))
    ]
    sections = list(_sections(listed, list(groups)))
    shown = rule_id or next((section.rows[0].id for section in sections), "")
    return {
        "filters": (level, trainer, group),
        "sections": sections,
        "found": len(listed),
        "all": len(rules()),
        "rule": _detail(rules()[shown]) if shown else None,
        "current": shown,
    }


def _group(rule: SpecRule) -> str:
    return rule.id.partition(".")[0]


def _text(rule: SpecRule) -> str:
    texts = (
        rule.id,
        rule_title(rule.id),
        _(rule.message),
        _(rule.why),
        rule.when.text,
        rule.source,
        *rule.knobs,
        rule.ref,
    )
    return "\n".join(text.lower().replace("-", "_") for text in texts)


def _sections(shown: list[SpecRule], groups: list[str]) -> Iterator[Section]:
    for name in groups:
        members = sorted((r for r in shown if _group(r) == name), key=lambda rule: LEVELS.index(rule.level))
        if members:
            yield Section(title=group_title(name), rows=[_row(rule) for rule in members])


def _row(rule: SpecRule) -> GuideRow:
    return GuideRow(id=rule.id, label=rule_title(rule.id), caption=trainer_words(rule.trainers), level=rule.level)


def _detail(rule: SpecRule) -> RuleDetail:
    return RuleDetail(
        id=rule.id,
        title=rule_title(rule.id),
        level=rule.level,
        level_word=_(rule.level),
        level_words=_(_LEVELS[rule.level]),
        message=parts_of(_(rule.message)),
        why=parts_of(_(rule.why)),
        when=rule.when.text,
        knobs=[knob_link(name) for name in rule.knobs],
        fixes=[[knob_link(name, made.text) for name, made in fix.items()] for fix in rule.fixes],
        trainers=trainer_words(rule.trainers),
        since=rule.since,
        before=rule.before,
        algorithms=algorithm_words(rule.algorithms, list(algorithms())) if rule.algorithms else "",
        kind=_(KINDS[rule.kind]),
        source=rule.source,
    )
