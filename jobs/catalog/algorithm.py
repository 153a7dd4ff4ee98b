"""The algorithms a run can train with, and the families that knobs, flags and rules name them by."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache

from jobs.catalog.tables import file_table


@dataclass(frozen=True, slots=True, kw_only=True)
class AlgorithmInfo:
    """One algorithm: what it is, and which families it belongs to.

    `families`: rl (samples are rolled out), grouped (several samples per prompt are the baseline), critic (a value
    model is trained), supervised (no rollout), answers (supervised by one given answer a prompt), pairs (supervised by
    a chosen and a rejected answer), anchored (preferences are compared with a frozen reference), scalar (what is
    trained says one number of a sequence), distillation (a frozen teacher says what to learn). Code asks for a family,
    never for an algorithm by name. `metric` is the one that runs are judged by. `without` are knobs of its families
    that mean nothing to it.
    """

    id: str
    label: str
    families: tuple[str, ...]
    metric: str
    help: str
    source: str
    without: tuple[str, ...] = ()


@cache
def algorithms() -> Mapping[str, AlgorithmInfo]:
    """Return every algorithm by id, in the order of the file."""
    tables = file_table("algorithms")
    return {
        name: AlgorithmInfo(
            id=name,
            label=table["label"],
            families=tuple(table["families"]),
            metric=table["metric"],
            help=table["help"],
            source=table["source"],
            without=tuple(table.get("without", ())),
        )
        for name, table in tables.items()
    }


def expand(names: Iterable[str]) -> tuple[str, ...]:
    """Return the algorithms that `names` stand for, in the order of the file: ids, families, or "all".

    Raises: ValueError for a name that is neither.
    """
    return _expanded(tuple(names))


@cache
def _expanded(names: tuple[str, ...]) -> tuple[str, ...]:
    wanted, expanded = set(names), []
    for name, info in algorithms().items():
        if wanted & {"all", name, *info.families}:
            expanded.append(name)
    choices = {"all", *algorithms(), *(family for info in algorithms().values() for family in info.families)}
    if strange := sorted(wanted - choices):
        raise ValueError(f"There is no algorithm or family {strange[0]!r}. Known: {', '.join(sorted(choices))}.")
    return tuple(expanded)


def is_in(algorithm: str, family: str) -> bool:
    """Return True if the algorithm belongs to the family."""
    return family in algorithms()[algorithm].families
