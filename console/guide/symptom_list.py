"""The guide's symptoms: how each shows, why it happens, and what to try, in order."""

from collections.abc import Sequence
from dataclasses import dataclass

from django.utils.translation import gettext as _

from console.guide.parts import (
    Asked,
    GuideRow,
    KnobLink,
    Section,
    algorithm_words,
    choice_filter,
    group_title,
    has_words,
    knob_link,
    trainer_filter,
    trainer_words,
    words_of,
)
from console.labels.catalog import metric_label
from jobs.catalog.algorithm import algorithms
from jobs.catalog.rules.condition import Condition
from jobs.catalog.rules.symptom import LogSignal, Remedy, Symptom, symptoms


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionText:
    """A condition in words, and the metric it looks at."""

    text: str
    metric: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricSignalDetail:
    """Conditions that have to hold together."""

    conditions: list[ConditionText]
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RemedyDetail:
    """One thing to try."""

    title: str
    changes: list[KnobLink]
    trainers: str
    algorithms: str
    when: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SymptomDetail:
    """A symptom as the guide shows it."""

    id: str
    title: str
    group: str
    signal: str
    causes: list[str]
    logs: Sequence[LogSignal]
    metrics: list[MetricSignalDetail]
    remedies: list[RemedyDetail]
    trainers: str
    algorithms: str
    when: str
    source: str


def symptoms_page(query: Asked, symptom_id: str) -> dict[str, object]:
    """Return the context of the tab. Raises: KeyError for a symptom that is not there."""
    trainer = trainer_filter(query)
    groups = dict.fromkeys(_group(symptom) for symptom in symptoms().values())
    group = choice_filter(query, "group", _("Group"), [(name, _title(name)) for name in groups])
    listed = [
        symptom
        for symptom in symptoms().values()
        if (not trainer.chosen or not symptom.trainers or trainer.chosen in symptom.trainers)
        and group.chosen in ("", _group(symptom))
        and has_words(_text(symptom), words_of(query))
    ]
    sections = [
        Section(title=_title(name), rows=rows)
        for name in groups
        if (rows := [_row(symptom) for symptom in listed if _group(symptom) == name])
    ]
    shown = symptom_id or next((section.rows[0].id for section in sections), "")
    return {
        "filters": (group, trainer),
        "sections": sections,
        "found": len(listed),
        "all": len(symptoms()),
        "symptom": _detail(symptoms()[shown]) if shown else None,
        "current": shown,
    }


def _group(symptom: Symptom) -> str:
    return symptom.id.partition(".")[0]


def _title(group: str) -> str:
    return _("Memory") if group == "memory" else group_title(group)


def _row(symptom: Symptom) -> GuideRow:
    return GuideRow(id=symptom.id, label=_(symptom.title), caption=trainer_words(symptom.trainers))


def _text(symptom: Symptom) -> str:
    lines = [line for signal in symptom.logs for line in (signal.text, signal.pattern.pattern)]
    texts = [symptom.id, _(symptom.title), _(symptom.signal), *map(_, symptom.causes), *lines, symptom.ref]
    texts += [_(remedy.title) for remedy in symptom.remedies]
    return "\n".join(text.lower().replace("-", "_") for text in texts)


def _detail(symptom: Symptom) -> SymptomDetail:
    return SymptomDetail(
        id=symptom.id,
        title=_(symptom.title),
        group=_title(_group(symptom)),
        signal=_(symptom.signal),
        causes=[_(cause) for cause in symptom.causes],
        logs=symptom.logs,
        metrics=[
            MetricSignalDetail(conditions=[_condition(each) for each in signal.conditions], source=signal.source)
            for signal in symptom.metrics
        ],
        remedies=[_remedy(remedy) for remedy in symptom.remedies],
        trainers=trainer_words(symptom.trainers),
        algorithms=algorithm_words(symptom.algorithms, list(algorithms())),
        when=symptom.when.text if symptom.when else "",
        source=symptom.source,
    )


def _remedy(remedy: Remedy) -> RemedyDetail:
    return RemedyDetail(
        title=_(remedy.title),
        changes=[knob_link(name, made.text) for name, made in remedy.change.items()],
        trainers=trainer_words(remedy.trainers) if remedy.trainers else "",
        algorithms=algorithm_words(remedy.algorithms, list(algorithms())),
        when=remedy.when.text if remedy.when else "",
        source=remedy.source,
    )


def _condition(condition: Condition) -> ConditionText:
    """Return a condition in words, and the metric it looks at."""
    statistic = {
        "mean": _("mean"),
        "min": _("least"),
        "max": _("most"),
        "spread": _("spread"),
        "growth": _("growth, later half over earlier half,"),
        "median": _("median"),
        "repeats": _("fraction with the same value"),
        "trend": _("trend (z)"),
        "fell": _("fraction of what was gained that is lost again, by the median"),
        "climbed": _("fraction of what was gained that is lost again, by the median"),
        "above_lowest": _("share above the lowest level, by the median"),
        "times_start": _("multiple of the start, by the median"),
        "gain": _("rise since the start in standard errors, by the median"),
        "outburst": _("third largest of the newest 20 over what was usual before, instead"),
    }.get(condition.statistic, "")
    name = metric_label(condition.metric) + (f" / {metric_label(condition.over)}" if condition.over else "")
    words: dict[str, str | int] = {"statistic": statistic, "n": condition.window, "metric": name}
    if condition.statistic == "not_finite":
        text = _("%(metric)s is not a number within its last %(n)s values") % words
    elif condition.statistic == "flat":
        words["n"] = condition.least
        text = (
            _("%(metric)s: no fall since the start, within %(n)s values or more") % words
            if condition.is_better_low
            else _("%(metric)s: no rise since the start, within %(n)s values or more") % words
        )
    elif condition.above is not None:
        words["bound"] = f"{condition.above:g}"
        text = _("%(metric)s: %(statistic)s of the last %(n)s values above %(bound)s") % words
    else:
        words["bound"] = f"{condition.below:g}"
        text = _("%(metric)s: %(statistic)s of the last %(n)s values below %(bound)s") % words
    return ConditionText(text=text, metric=condition.metric)
