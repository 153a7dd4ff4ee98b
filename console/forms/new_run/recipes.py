"""The recipes that the New run page offers to start from, and which one a form was started from."""

from dataclasses import dataclass

from django.utils.translation import gettext as _

from jobs.catalog.algorithm import algorithms
from jobs.catalog.recipe import Recipe, recipes
from jobs.catalog.spec.runspec import RunSpec
from jobs.catalog.trainer import trainers


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeRow:
    """One recipe in the picker; `words` is what a search looks through."""

    id: str
    label: str
    help: str
    algorithm: str
    trainer: str
    model: str
    hardware: str
    source: str
    num_knobs: int
    words: str


def recipe_rows() -> list[RecipeRow]:
    """Return every recipe, in the order of the catalogue."""
    return [_row(recipe) for recipe in recipes().values()]


def recipe_of(base: RunSpec) -> Recipe | None:
    """Return the recipe whose very spec this is; None where the form was started from something else."""
    return next((recipe for recipe in recipes().values() if recipe.spec == base), None)


def _row(recipe: Recipe) -> RecipeRow:
    spec = recipe.spec
    algorithm = _(algorithms()[spec.algorithm].label)
    trainer = f"{_(trainers()[spec.trainer.name].label)} {spec.trainer.version}".rstrip()
    words = [recipe.id, recipe.label, algorithm, trainer, spec.model.id, recipe.hardware, *recipe.tags]
    words += [_(recipe.label), _(recipe.hardware)]
    return RecipeRow(
        id=recipe.id,
        label=_(recipe.label),
        help=_(recipe.help),
        algorithm=algorithm,
        trainer=trainer,
        model=spec.model.id,
        hardware=_(recipe.hardware),
        source=recipe.source,
        num_knobs=sum(chosen.origin == "recipe" for chosen in spec.knobs.values()),
        words=" ".join(words).lower(),
    )
