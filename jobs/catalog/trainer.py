"""The trainers a run can be launched with, their versions, and which algorithms each offers. Newest version first."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from jobs.catalog.sentence import Sentence
from jobs.catalog.tables import folder_tables

Version = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerInfo:
    """One trainer. `package` is its distribution's name, "" where it is part of the product.

    `versions` are those whose options are known, newest first; the built-in trainer has one, "". `needs_gpu` are the
    algorithms that it cannot run on CPU. `algorithm_since` gives the first version of an algorithm where it is not the
    oldest known one.
    """

    id: str
    label: str
    package: str
    versions: tuple[str, ...]
    algorithms: tuple[str, ...]
    needs_gpu: tuple[str, ...]
    algorithm_since: Mapping[str, str]
    help: str
    source: str

    def called(self, version: str) -> Sentence:
        """Return what a sentence calls it: "the built-in trainer", "OpenRLHF 0.11.2"."""
        return Sentence(f"{self.label} {version}".strip()) if self.package else Sentence("the built-in trainer")

    def offers(self, algorithm: str, version: str) -> bool:
        """Return True if this version of the trainer has the algorithm."""
        if algorithm not in self.algorithms:
            return False
        return as_version(version) >= as_version(self.algorithm_since.get(algorithm, ""))


@cache
def trainers() -> Mapping[str, TrainerInfo]:
    """Return every trainer by id; the built-in one is first."""
    tables = folder_tables("trainers")
    return {name: _trainer(name, tables[name]) for name in sorted(tables, key=lambda name: name != "native")}


def as_version(text: str) -> Version:
    """Return a version as numbers that compare: 0.10.1 is older than 0.10.2; "" is older than all."""
    return tuple(int(part) for part in text.split(".")) if text else ()


def _trainer(name: str, table: Mapping[str, object]) -> TrainerInfo:
    def texts(key: str) -> tuple[str, ...]:
        given = table.get(key, [])
        assert isinstance(given, list)
        return tuple(str(item) for item in given)

    since = table.get("algorithm_since", {})
    assert isinstance(since, dict)
    return TrainerInfo(
        id=name,
        label=str(table["label"]),
        package=str(table["package"]),
        versions=texts("versions"),
        algorithms=texts("algorithms"),
        needs_gpu=texts("needs_gpu"),
        algorithm_since=since,
        help=str(table["help"]),
        source=str(table["source"]),
    )
