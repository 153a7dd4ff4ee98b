"""The guide's recipes: when to use each, what it needs, and in which values it differs from the defaults."""

from typing import Any

from django.utils.translation import gettext as _

from console.guide.parts import (
    Asked,
    Row,
    Section,
    algorithm_filter,
    group_title,
    has_words,
    knob_link,
    said,
    trainer_filter,
    value_text,
    words_of,
)
from jobs.catalog.algorithm import algorithms
from jobs.catalog.knob import knobs
from jobs.catalog.recipe import Recipe, recipe, recipes
from jobs.catalog.spec.runspec import RunSpec
from jobs.catalog.trainer import trainers


def recipes_page(asked: Asked, recipe_id: str) -> dict[str, Any]:
    """Return the context of the tab. Raises: UnknownRecipe, a LookupError, for a recipe that is not there."""
    trainer, algorithm = trainer_filter(asked), algorithm_filter(asked)
    found = [
        each
        for each in recipes().values()
        if trainer.chosen in ("", each.spec.trainer.name)
        and algorithm.chosen in ("", each.spec.algorithm)
        and has_words(_text(each), words_of(asked))
    ]
    sections = [
        Section(title=_(info.label), rows=rows)
        for info in trainers().values()
        if (rows := [_row(each) for each in found if each.spec.trainer.name == info.id])
    ]
    shown = recipe_id or next((section.rows[0].id for section in sections), "")
    return {
        "filters": (trainer, algorithm),
        "sections": sections,
        "found": len(found),
        "all": len(recipes()),
        "recipe": _detail(recipe(shown)) if shown else None,
        "current": shown,
    }


def _row(each: Recipe) -> Row:
    return Row(id=each.id, label=_(each.label), caption=_(each.hardware))


def _text(each: Recipe) -> str:
    texts = (each.id, _(each.label), _(each.help), _(each.hardware), each.source, each.spec.model.id, *each.tags)
    return "\n".join(text.lower().replace("-", "_") for text in texts)


def _detail(each: Recipe) -> dict[str, Any]:
    spec = each.spec
    base = recipes().get(each.based_on)
    differ, same = _values(spec)
    return {
        "id": each.id,
        "label": _(each.label),
        "help": _(each.help),
        "hardware": _(each.hardware),
        "num_workers": spec.num_workers,
        "prerequisites": [_(text) for text in each.prerequisites],
        "source": each.source,
        "version": _(each.version),
        "tags": each.tags,
        "base": {"id": base.id, "label": _(base.label)} if base else None,
        "algorithm": _(algorithms()[spec.algorithm].label),
        "trainer": f"{_(trainers()[spec.trainer.name].label)} {spec.trainer.version}".rstrip(),
        "model": spec.model.id,
        "data": spec.data.id,
        "reward": spec.reward.location or spec.reward.kind if "rl" in algorithms()[spec.algorithm].families else "",
        "values": differ,
        "num_same": same,
    }


def _values(spec: RunSpec) -> tuple[list[dict[str, Any]], int]:
    """Return the values that differ from the trainer's defaults, and how many that are set do not."""
    found = []
    same = 0
    for knob_id, chosen in spec.knobs.items():
        if chosen.origin != "recipe":
            continue
        knob = knobs()[knob_id]
        default = knob.default_for(spec.algorithm, spec.trainer.name, spec.trainer.version)
        if chosen.value == default:
            same += 1
            continue
        flag = knob.flag(trainer=spec.trainer.name, version=spec.trainer.version, algorithm=spec.algorithm)
        found.append(
            {
                "knob": knob_link(knob_id),
                "value": value_text(chosen.value),
                "default": value_text(default),
                "unit": said(knob.unit),
                "flag": flag.name if flag else "",
                "group": group_title(knob.group),
            }
        )
    return found, same
