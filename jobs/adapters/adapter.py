"""What every trainer's adapter promises: how a RunSpec becomes a command, how a command is read back, and its logs.

One file beside this one, named like the trainer in jobs/catalog/trainers, adds a trainer; it ends with
`PLUGIN: Adapter = ...`. What several adapters share lies here too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from jobs.adapters.recorded import RecordedFile
from jobs.catalog.runspec import RunSpec
from jobs.catalog.trainer import trainers
from profiling import plugins

ONLY_SHELL = "Only the shell that it was written for knows this value."
NO_ENVIRONMENT = "A run's spec holds no environment; the cluster's Ray runtime has it."
NOT_KEPT = "Secrets stay in the environment of the cluster; Pitwall does not keep this one."
IS_DEFAULT = "It is the trainer's default, which holds anyway."
NO_OPTION = "It belongs to no option."
ONE_VALUE = "It takes one value."
OF_HYDRA = "It is an option of Hydra, not of the training."
WHY = (ONLY_SHELL, NO_ENVIRONMENT, NOT_KEPT, IS_DEFAULT, NO_OPTION, ONE_VALUE, OF_HYDRA)
"""Why a part of a command stays behind, in sentences without values in them, for whoever translates them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How to start a trainer: never a shell string, never a secret.

    `env` is what is added to the runner's own environment; `files` are texts by path relative to the run directory, to
    be written before the start. The working directory is the run directory.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """A part of a command that did not make it into the spec: the option as it was written, and why.

    One that was left out on purpose says nothing that a run would need from the spec: it is Pitwall's to set, the
    cluster's, or does nothing. Any other was not understood, and whoever pasted it has to look.
    """

    option: str
    value: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Translated:
    """An option of another version that was understood: as it was written, and as this version spells it."""

    option: str
    now: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadBack:
    """What was understood of a command. `spec` is plain JSON for `parse_spec`; nothing in it has been checked yet.

    `understood` are the options and keys, as they were written, that the spec now says; of these `translated` are those
    that this version spells otherwise. `num_defaults` counts what of a whole config only repeats the trainer's
    defaults.
    """

    spec: Mapping[str, Any]
    understood: tuple[str, ...] = ()
    left_out: tuple[Unread, ...] = ()
    unread: tuple[Unread, ...] = ()
    translated: tuple[Translated, ...] = ()
    num_defaults: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Spelling:
    """An option or key that no knob's flag spells, and what it is here.

    `says` are the knobs and dotted fields of the spec that hold what it says. Without any, `why` says why it stays
    behind where a command has it.
    """

    name: str
    says: tuple[str, ...] = ()
    why: str = ""


class LogReader(Protocol):
    """Turns what a trainer writes into events, as `docs/develop/protocol.md` has them, while it runs."""

    def poll(self, *, now_ns: int) -> Sequence[Mapping[str, Any]]:
        """Return the events of what was written since the last call. What cannot be read is left out, never raised."""
        ...


class Adapter(Protocol):
    """Knows one trainer's command line, and its logs."""

    def command(self, *, spec: RunSpec, run_dir: Path, python: str, device: str) -> Launch:
        """Return how to start the trainer on `spec`.

        `run_dir` is the run directory on this node, `python` the interpreter that has the trainer, `device` one of
        auto, cpu and cuda. Nothing is read or written here: the same arguments give the same bytes on every machine.
        """
        ...

    def read_back(self, *, words: Sequence[str], version: str) -> ReadBack:
        """Return what the words of a command say, in any dialect, as a spec for `version`.

        One word that holds white space is read as shell text, as people paste it; nothing is run. With "" the spec is
        for the version that the command seems to be written for.

        Raises: ValueError with a sentence if the words are no command of this trainer at all.
        """
        ...

    def spellings(self, *, version: str) -> Sequence[Spelling]:
        """Return the options and keys that a version, or older ones that it translates, has beside the knobs' flags."""
        ...

    def reader(self, *, spec: RunSpec, run_dir: Path) -> LogReader | None:
        """Return who reads the trainer's logs; None where it writes `events.jsonl` itself."""
        ...

    def role_of(self, *, spec: RunSpec, actor: str) -> str:
        """Return the role of a process that trains or generates, by the class of the Ray actor that it is.

        `actor` is "" for a process that is none; the role is "" for one that is not to be recorded.
        """
        ...

    def recorded(self, *, run_dir: Path) -> Sequence[RecordedFile]:
        """Return the files that the trainer's own profiling has written so far; () where it has none."""
        ...


def adapter(name: str) -> Adapter:
    """Return the adapter of the trainer `name`.

    Raises: profiling.plugins.UnknownPlugin, naming the trainers there are.
    """
    if name not in trainers():  # what the adapters share lies beside them
        raise plugins.UnknownPlugin(f"{name!r} is not one of {', '.join(trainers())}.")
    plugin: Adapter = plugins.load(f"{__package__}.{name}", "adapter")
    return plugin
