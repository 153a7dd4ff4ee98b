"""The guide's diagnosis rules: what each watches, when it fires, what it needs, and what to change then."""

from dataclasses import dataclass

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from console.guide.parts import Asked, KnobLink, choice_filter, has_words, knob_link, words_of
from profiling.diagnosis.finding import QUESTIONS, Rule, amount, rules

_NEEDS = {
    "phases": gettext_noop("phases of steps, always recorded"),
    "readings": gettext_noop("readings of the run"),
    "trace": gettext_noop("a trace"),
    "device_trace": gettext_noop("a trace of a GPU"),
    "memory": gettext_noop("memory of the device"),
    "counters": gettext_noop("counters of the GPU"),
    "collectives": gettext_noop("collectives of all ranks"),
    "capture": gettext_noop("a capture"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DiagnosisDetail:
    """A diagnosis rule as the guide shows it; `sign` is on which side of `watch` and `bad` it fires."""

    key: str
    title: str
    definition: str
    sign: str
    watch: str
    bad: str
    source: str
    needs: str
    advice: str
    knobs: list[KnobLink]


def diagnosis_page(query: Asked) -> dict[str, object]:
    """Return the context of the tab."""
    question = choice_filter(query, "question", _("Question"), [(name, _(title)) for name, title in QUESTIONS.items()])
    when = choice_filter(query, "when", _("When"), [("live", _("while the run trains")), ("files", _("of a capture"))])
    shown = [
        (key, rule)
        for key, rule in rules().items()
        if question.chosen in ("", rule.question)
        and when.chosen in ("", "live" if rule.is_live else "files")
        and has_words(_text(key, rule), words_of(query))
    ]
    return {
        "filters": (question, when),
        "rules": [_shown(key, rule) for key, rule in shown],
        "found": len(shown),
        "all": len(rules()),
    }


def _text(key: str, rule: Rule) -> str:
    texts = (key, _(rule.title), _(rule.definition), _(rule.advice), *(change.knob for change in rule.changes))
    return "\n".join(text.lower().replace("-", "_") for text in texts)


def _shown(key: str, rule: Rule) -> DiagnosisDetail:
    return DiagnosisDetail(
        key=key,
        title=_(rule.title),
        definition=_(rule.definition),
        sign="<" if rule.is_low_bad else ">",
        watch=amount(rule.watch, rule.unit),
        bad=amount(rule.bad, rule.unit),
        source=_(rule.source),
        needs=", ".join(_(_NEEDS[need]) for need in rule.needs),
        advice=_(rule.advice),
        knobs=[knob_link(change.knob) for change in rule.changes],
    )
