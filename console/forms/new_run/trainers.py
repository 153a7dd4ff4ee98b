"""The trainers, versions and algorithms that the New run page offers, and what they have in common for its inputs."""

from typing import Any

from django.utils.translation import gettext as _

from console.forms.new_run.form import Combination
from jobs.catalog.algorithm import algorithms
from jobs.catalog.trainer import TrainerInfo, trainers


def trainer_choices() -> list[tuple[str, str]]:
    """Return (id, label) of every trainer, the built-in one first."""
    return [(info.id, _(info.label)) for info in trainers().values()]


def algorithm_choices(chosen: Combination) -> list[tuple[str, str]]:
    """Return (id, label) of the algorithms that the chosen trainer offers in the chosen version."""
    return [(name, _(algorithms()[name].label)) for name in _offered(trainers()[chosen.trainer], chosen.version)]


def words_of(chosen: Combination) -> tuple[str, ...]:
    """Return the words by which parts of the page say when they show: the algorithm, its families and the trainer."""
    kind = "native" if chosen.trainer == "native" else "foreign"
    return (chosen.algorithm, *algorithms()[chosen.algorithm].families, chosen.trainer, kind)


def trainers_for_script() -> dict[str, Any]:
    """Return what the page's module must know to offer only what there is."""
    return {
        "trainers": {
            info.id: {
                "label": _(info.label),
                "help": _(info.help),
                "versions": {version: _offered(info, version) for version in info.versions},
            }
            for info in trainers().values()
        },
        "algorithms": {
            info.id: {"label": _(info.label), "help": _(info.help), "families": info.families}
            for info in algorithms().values()
        },
    }


def _offered(info: TrainerInfo, version: str) -> list[str]:
    return [name for name in info.algorithms if info.offers(name, version)]
