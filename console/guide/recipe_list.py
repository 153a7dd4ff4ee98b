"""The guide's recipes: when to use each, what it needs, and in which values it differs from the defaults."""

from collections.abc import Sequence
from dataclasses import dataclass

from django.utils.translation import gettext as _

from console.guide.parts import (
    Asked,
    GuideRow,
    KnobLink,
    Section,
    algorithm_filter,
    group_title,
    has_words,
    knob_link,
    shown_text,
    trainer_filter,
    value_text,
    words_of,
)
from jobs.catalog.algorithm import algorithms
from jobs.catalog.knob import knobs
from jobs.catalog.recipe import Recipe, recipe, recipes
from jobs.catalog.spec.runspec import RunSpec
from jobs.catalog.trainer import trainers


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeBase:
    """The recipe that another is based on."""

    id: str
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeValue:
    """A value that is not the trainer's default; `flag` is the trainer's name of the knob."""

    knob: KnobLink
    value: str
    default: str
    unit: str
    flag: str
    group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeDetail:
    """A recipe as the guide shows it; `num_same` of the values that it sets are the trainer's defaults."""

    id: str
    label: str
    help: str
    hardware: str
    num_workers: int
    prerequisites: list[str]
    source: str
    version: str
    tags: Sequence[str]
    base: RecipeBase | None
    algorithm: str
    trainer: str
    model: str
    data: str
    reward: str
    values: list[RecipeValue]
    num_same: int


def recipes_page(query: Asked, recipe_id: str) -> dict[str, object]:
    """Return the context of the tab. Raises: UnknownRecipe, a LookupError, for a recipe that is not there."""
    trainer, algorithm = trainer_filter(query), algorithm_filter(query)
    listed = [
        each
        for each in recipes().values()
        if trainer.chosen in ("", each.spec.trainer.name)
        and algorithm.chosen in ("", each.spec.algorithm)
        and has_words(_text(each), words_of(query))
    ]
    sections = [
        Section(title=_(info.label), rows=rows)
        for info in trainers().values()
        if (rows := [_row(each) for each in listed if each.spec.trainer.name == info.id])
    ]
    shown = recipe_id or next((section.rows[0].id for section in sections), "")
    return {
        "filters": (trainer, algorithm),
        "sections": sections,
        "found": len(listed),
        "all": len(recipes()),
        "recipe": _detail(recipe(shown)) if shown else None,
        "current": shown,
    }


def _row(each: Recipe) -> GuideRow:
    return GuideRow(id=each.id, label=_(each.label), caption=_(each.hardware))


def _text(each: Recipe) -> str:
    texts = (each.id, _(each.label), _(each.help), _(each.hardware), each.source, each.spec.model.id, *each.tags)
    return "\n".join(text.lower().replace("-", "_") for text in texts)


def _detail(each: Recipe) -> RecipeDetail:
    spec = each.spec
    base = recipes().get(each.based_on)
    differ, same = _values(spec)
    return RecipeDetail(
        id=each.id,
        label=_(each.label),
        help=_(each.help),
        hardware=_(each.hardware),
        num_workers=spec.num_workers,
        prerequisites=[_(text) for text in each.prerequisites],
        source=each.source,
        version=_(each.version),
        tags=each.tags,
        base=RecipeBase(id=base.id, label=_(base.label)) if base else None,
        algorithm=_(algorithms()[spec.algorithm].label),
        trainer=f"{_(trainers()[spec.trainer.name].label)} {spec.trainer.version}".rstrip(),
        model=spec.model.id,
        data=spec.data.id,
        reward=spec.reward.location or spec.reward.kind if "rl" in algorithms()[spec.algorithm].families else "",
        values=differ,
        num_same=same,
    )


def _values(spec: RunSpec) -> tuple[list[RecipeValue], int]:
    """Return the values that differ from the trainer's defaults, and how many that are set do not."""
    values = []
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
        values.append(
            RecipeValue(
                knob=knob_link(knob_id),
                value=value_text(chosen.value),
                default=value_text(default),
                unit=shown_text(knob.unit),
                flag=flag.name if flag else "",
                group=group_title(knob.group),
            )
        )
    return values, same
