"""The guide's dictionary of metrics: what each number is, where it is healthy, and what trainers call it."""

from collections.abc import Sequence
from dataclasses import dataclass

from django.utils.translation import gettext as _

from console.guide.parts import Asked, choice_filter, has_words, shown_text, words_of
from jobs.catalog.algorithm import algorithms
from jobs.catalog.metric import MetricInfo, metrics
from jobs.catalog.trainer import BUILT_IN, trainers


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricDetail:
    """A metric as the guide shows it; `names` are whose, and what it is called, or made of, there."""

    name: str
    label: str
    unit: str
    definition: str
    better: str
    arrow: str
    healthy: str
    healthy_source: str
    names: list[tuple[str, Sequence[str]]]


def metrics_page(query: Asked) -> dict[str, object]:
    """Return the context of the tab."""
    kinds = dict.fromkeys(name.partition("/")[0] for name in metrics())
    kind = choice_filter(query, "kind", _("Kind"), [(name, name) for name in kinds])
    named = [(name, _(info.label)) for name, info in trainers().items() if name != BUILT_IN]
    trainer = choice_filter(query, "trainer", _("Named by"), named)
    shown = [
        info
        for info in metrics().values()
        if kind.chosen in ("", info.name.partition("/")[0])
        and (not trainer.chosen or any(key.partition("/")[0] == trainer.chosen for key in info.sources))
        and has_words(_text(info), words_of(query))
    ]
    return {
        "filters": (kind, trainer),
        "metrics": [_shown(info) for info in shown],
        "found": len(shown),
        "all": len(metrics()),
    }


def _text(info: MetricInfo) -> str:
    theirs = [name for names in info.sources.values() for name in names]
    texts = (info.name, _(info.label), _(info.definition), *theirs)
    return "\n".join(text.lower().replace("-", "_") for text in texts)


def _shown(info: MetricInfo) -> MetricDetail:
    return MetricDetail(
        name=info.name,
        label=_(info.label),
        unit=shown_text(info.unit),
        definition=_(info.definition),
        better={"higher": _("higher"), "lower": _("lower")}.get(info.better, ""),
        arrow={"higher": "arrow-up", "lower": "arrow-down"}.get(info.better, ""),
        healthy=" – ".join(f"{bound:,g}".replace("-", "−") for bound in info.healthy),
        healthy_source=shown_text(info.healthy_source),
        names=[(_whose(key), names) for key, names in info.sources.items()],
    )


def _whose(key: str) -> str:
    """Return whose name it is: a trainer's, or a trainer's for one algorithm."""
    trainer, _slash, algorithm = key.partition("/")
    label = _(trainers()[trainer].label)
    return f"{label}, {_(algorithms()[algorithm].label)}" if algorithm in algorithms() else label
