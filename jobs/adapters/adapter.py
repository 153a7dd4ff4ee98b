"""What the console, the checks and the runner ask of a trainer: its command, its options, its logs, its captures, its
checkpoints.

A folder beside this file that has a `trainer.toml` is a trainer (jobs.catalog.trainer). Its `adapter.py` ends with
`PLUGIN = Adapter(...)`, and puts together what its other files have; what it leaves out has a plain default here. What
several trainers share stands in `command_line` and `logs`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from jobs.adapters.captures import Captures, NoCaptures
from jobs.adapters.checkpoints import NoCheckpoints, TrainerCheckpoints
from jobs.adapters.launching import Launch
from jobs.catalog.sentence import Sentence
from jobs.catalog.spec.runspec import RunSpec
from jobs.catalog.trainer import part
from profiling.events import Event

ONLY_SHELL = "Only the shell that it was written for knows this value."
NO_ENVIRONMENT = "Pitwall, Ray or the shell sets it; a run cannot be given it."
NOT_KEPT = "The run names it as a secret; give its value with the launch, this one is not kept."
IS_DEFAULT = "It is the trainer's default, which holds anyway."
NO_OPTION = "It belongs to no option."
ONE_VALUE = "It takes one value."
OF_HYDRA = "It is an option of Hydra, not of the training."
WHY = (ONLY_SHELL, NO_ENVIRONMENT, NOT_KEPT, IS_DEFAULT, NO_OPTION, ONE_VALUE, OF_HYDRA)
"""Why a part of a command stays behind, in sentences without values in them, for whoever translates them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Omission:
    """A part of a command that did not make it into the spec: the option as it was written, and why.

    One that was left out on purpose says nothing that a run would need from the spec: it is Pitwall's to set, the
    cluster's, or does nothing. Any other was not understood, and whoever pasted it has to look.
    """

    option: str
    value: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionRename:
    """An option of another version that was understood: as it was written, and as this version has it."""

    option: str
    now: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadBack:
    """What was understood of a command. `spec` is plain JSON for `parse_spec`; nothing in it has been checked yet.

    `understood` are the options and keys, as they were written, that the spec now says; of these `translated` are those
    that this version names otherwise. `num_defaults` counts what of a whole config only repeats the trainer's
    defaults.
    """

    spec: Mapping[str, Any]
    understood: tuple[str, ...] = ()
    left_out: tuple[Omission, ...] = ()
    unread: tuple[Omission, ...] = ()
    translated: tuple[OptionRename, ...] = ()
    num_defaults: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionName:
    """An option or key that is no knob's flag, and what it is here.

    `spec_fields` are the knobs and dotted fields of the spec that hold its value. Without any, `why` tells why it stays
    behind where a command has it.
    """

    name: str
    spec_fields: tuple[str, ...] = ()
    why: str = ""


class Command(Protocol):
    """How a RunSpec becomes a command: `command.py` of a trainer's folder."""

    def __call__(self, *, spec: RunSpec, run_dir: Path, python: str, device: str) -> Launch:
        """Return how to start the trainer on `spec`.

        `run_dir` is the run directory on this node, `python` the interpreter that has the trainer, `device` one of
        auto, cpu and cuda. Nothing is read or written here: the same arguments give the same bytes on every machine.

        Raises: ValueError with a sentence for what the trainer cannot do.
        """
        ...


class CommandReader(Protocol):
    """How a command is read back: `read_back.py` of a trainer's folder."""

    def __call__(self, *, arguments: Sequence[str], version: str) -> ReadBack:
        """Return what the arguments of a command say, in any dialect, as a spec for `version`.

        One argument that holds white space is read as shell text, as people paste it; nothing is run. With "" the spec
        is for the version that the command seems to be written for.

        Raises: ValueError with a sentence if the arguments are no command of this trainer at all.
        """
        ...


class OptionNames(Protocol):
    """The options that no knob writes: `options.py` of a trainer's folder."""

    def __call__(self, *, version: str) -> Sequence[OptionName]:
        """Return the options and keys that a version, or older ones that it translates, has beside the knobs' flags."""
        ...


class LogReader(Protocol):
    """Turns what a trainer writes into events, as `docs/develop/protocol.md` has them, while it runs."""

    def poll(self, *, now_ns: int) -> Sequence[Event]:
        """Return the events of what was written since the last call. What cannot be read is left out, never raised."""
        ...


class Logs(Protocol):
    """Who reads a run's logs: `logs.py` of a trainer's folder."""

    def __call__(self, *, spec: RunSpec, run_dir: Path) -> LogReader | None:
        """Return the reader of one run directory; None where the trainer writes `events.jsonl` itself."""
        ...


def no_command(*, arguments: Sequence[str], version: str) -> ReadBack:  # noqa: ARG001
    """Refuse: the built-in trainer's command names a run directory and nothing else."""
    text = "The built-in trainer is started on a run directory: paste the run's spec instead."
    raise ValueError(Sentence(text))


def no_options(*, version: str) -> Sequence[OptionName]:  # noqa: ARG001
    """Return nothing: the trainer reads the spec by its own names."""
    return ()


def no_logs(*, spec: RunSpec, run_dir: Path) -> None:  # noqa: ARG001
    """Return None: the trainer writes events itself."""
    return


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter:
    """One trainer's part of starting and following runs. The defaults are those of a trainer that reads the RunSpec
    and writes events itself."""

    command: Command
    read_back: CommandReader = no_command
    option_names: OptionNames = no_options
    logs: Logs = no_logs
    captures: Captures = field(default_factory=NoCaptures)
    checkpoints: TrainerCheckpoints = field(default_factory=NoCheckpoints)


def adapter(name: str) -> Adapter:
    """Return the adapter of the trainer `name`.

    Raises: profiling.plugins.UnknownPlugin, naming the trainers there are.
    """
    loaded: Adapter = part(name, "adapter")
    return loaded
