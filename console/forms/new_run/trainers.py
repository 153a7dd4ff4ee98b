"""The trainers, versions and algorithms that the New run page offers, and what they have in common for its inputs."""

from collections.abc import Sequence

from django.utils.translation import gettext as _

from console.forms.new_run.form import Combination
from jobs.catalog.algorithm import algorithms
from jobs.catalog.sentence import Sentence, in_words
from jobs.catalog.trainer import BUILT_IN, TrainerInfo, trainers


def trainer_choices() -> list[tuple[str, str]]:
    """Return (id, label) of every trainer, the built-in one first."""
    return [(info.id, _(info.label)) for info in trainers().values()]


def algorithm_choices(chosen: Combination) -> list[tuple[str, str]]:
    """Return (id, label) of the algorithms that the chosen trainer offers in the chosen version."""
    return [(name, _(algorithms()[name].label)) for name in _offered(trainers()[chosen.trainer], chosen.version)]


def words_of(chosen: Combination) -> tuple[str, ...]:
    """Return the words by which parts of the page say when they show: the algorithm, its families and the trainer."""
    kind = "native" if chosen.trainer == BUILT_IN else "foreign"
    return (chosen.algorithm, *algorithms()[chosen.algorithm].families, chosen.trainer, kind)


def import_choices() -> dict[str, str]:
    """Return the names of the trainers of which a command, and of which a configuration, can be imported."""
    others = [info for info in trainers().values() if info.package]
    return {
        "commands": _either([info.label for info in others]),
        "configs": _either([info.label for info in others if info.reads_config]),
    }


def scored_by(kind: str) -> str:
    """Return the ids of the trainers that take a kind of reward, divided by spaces, as `data-for` has them."""
    return " ".join(info.id for info in trainers().values() if kind in info.rewards)


def _either(labels: Sequence[str]) -> str:
    *some, last = labels
    return in_words(Sentence("{some} or {last}", some=", ".join(some), last=last), _) if some else last


def trainers_for_script() -> dict[str, object]:
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
