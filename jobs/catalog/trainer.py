"""The trainers a run can be launched with: one folder each in `jobs/adapters`, found by its `trainer.toml`.

The catalogue reads that table. What a trainer does beyond it is code in the same folder, which stands above the
catalogue and the planner: they own the protocols and ask `part` for the trainer's implementation, by name (decision
0019). Nothing here imports a trainer.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any

from jobs.catalog.algorithm import algorithms, expand
from jobs.catalog.sentence import Sentence
from jobs.catalog.tables import plugin_tables
from profiling import plugins

Version = tuple[int, ...]

FOLDER = "jobs.adapters"
BUILT_IN = "native"
UNTOLD = ("samples", "phases", "engine", "stop")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerInfo:
    """One trainer, as its `trainer.toml` has it.

    `package` is its distribution's name, "" where nothing has to be installed for it. `versions` are those whose
    options are known, newest first; the built-in trainer has one, "". `algorithms` are listed, or `algorithms_from`
    names the package that has a file for each. `needs_gpu` are the algorithms that it cannot run on CPU.
    `algorithm_since` gives the first version of an algorithm where it is not the oldest known one. `families` are the
    engines that it trains with, as the planner names them, and `rewards` the kinds of reward that it scores by.

    `own_reward_code` is a pattern of reward locations that are code of the trainer itself. `runs_data_scripts`: data
    that is a Python file is executed. `counts_prompts`: the batch of an update counts prompts, not samples.
    `takes_whole_micro_batches`: a supervised batch has to be a multiple of the micro-batch. `adds_system_prompt` to
    data that Pitwall lays out. `messages_through` is the knob without which a column of messages is not read.
    `reads_config`: a configuration file says the same as a command. `collects_nsys_since` is the first version whose
    reports of nsys in reinforcement learning end up in the run's folder. `on_ray` are the algorithms, or families of
    them, whose processes are Ray actors with GPUs of their own; of others the command itself is given the GPUs, on one
    node. `models` are patterns of the folders below the run directory in which it leaves its model. `actors` gives
    roles by a part of the name of a Ray actor's class, in lower case, as error reports have it. `samples_of` are the
    algorithms, or families of them, of which it leaves responses where they are read, `samples_since` the first version
    that does, and `samples_with` the knob that switches that on. `untold` are sentences about what its own code does
    not tell, by subject (UNTOLD); `{trainer}` in them is its label and version.
    """

    id: str
    label: str
    package: str
    versions: tuple[str, ...]
    algorithms: tuple[str, ...]
    needs_gpu: tuple[str, ...]
    families: tuple[str, ...]
    rewards: tuple[str, ...]
    help: str
    source: str
    algorithm_since: Mapping[str, str]
    own_reward_code: str = ""
    runs_data_scripts: bool = False
    counts_prompts: bool = False
    takes_whole_micro_batches: bool = False
    adds_system_prompt: bool = False
    messages_through: str = ""
    reads_config: bool = False
    collects_nsys_since: str = ""
    on_ray: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    actors: Mapping[str, str]
    samples_of: tuple[str, ...] = ()
    samples_since: str = ""
    samples_with: str = ""
    untold: Mapping[str, str] = field(default_factory=dict)

    def called(self, version: str) -> Sentence:
        """Return what a sentence calls it: "the built-in trainer", or its label and version."""
        is_built_in = self.id == BUILT_IN
        return Sentence("the built-in trainer") if is_built_in else Sentence(f"{self.label} {version}".strip())

    def uses_ray(self, algorithm: str) -> bool:
        """Return True if the processes of a run are Ray actors, and not the command's own."""
        return algorithm in expand(self.on_ray)

    def leaves_samples(self, algorithm: str, version: str) -> bool:
        """Return True if this version leaves responses of the algorithm where they are read, if it is told to."""
        is_new = as_version(version) >= as_version(self.samples_since)
        return is_new and algorithm in expand(self.samples_of)

    def offers(self, algorithm: str, version: str) -> bool:
        """Return True if this version of the trainer has the algorithm."""
        if algorithm not in self.algorithms:
            return False
        return as_version(version) >= as_version(self.algorithm_since.get(algorithm, ""))


@cache
def trainers() -> Mapping[str, TrainerInfo]:
    """Return every trainer by id; the built-in one is first.

    Raises: ValueError, naming the trainer, for a key of its table that is unknown or missing.
    """
    tables = plugin_tables(FOLDER, "trainer")
    return {name: _trainer(name, tables[name]) for name in sorted(tables, key=lambda name: name != BUILT_IN)}


def part(trainer: str, name: str) -> Any:
    """Return the PLUGIN of one file of a trainer's folder: its adapter, placement or planning.

    Raises: profiling.plugins.UnknownPlugin, naming the trainers there are, or the files of this one.
    """
    if trainer not in trainers():
        raise plugins.UnknownPlugin(f"{trainer!r} is not one of {', '.join(trainers())}.")
    return plugins.load(f"{FOLDER}.{trainer}", name)


@cache
def as_version(text: str) -> Version:
    """Return a version as numbers that compare: 0.10.1 is older than 0.10.2; "" is older than all."""
    return tuple(int(part) for part in text.split(".")) if text else ()


def _trainer(name: str, table: Mapping[str, Any]) -> TrainerInfo:
    allowed = {each.name for each in fields(TrainerInfo)} - {"id"} | {"algorithms_from"}
    if strange := sorted(set(table) - allowed):
        raise ValueError(f"{name}: a trainer has no key {strange[0]!r}. Known: {', '.join(sorted(allowed))}.")
    if strange := sorted(set(table.get("untold", {})) - set(UNTOLD)):
        raise ValueError(f"{name}: untold has no subject {strange[0]!r}. Known: {', '.join(UNTOLD)}.")
    values = {key: tuple(value) if isinstance(value, list) else value for key, value in table.items()}
    if folder := values.pop("algorithms_from", ""):
        values["algorithms"] = tuple(each for each in algorithms() if each in plugins.names(folder))
    try:
        return TrainerInfo(**{"id": name, "algorithm_since": {}, "actors": {}} | values)
    except TypeError as error:
        raise ValueError(f"{name}: trainer.toml is not complete: {error}") from error
