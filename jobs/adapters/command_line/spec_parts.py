"""What a command has said so far of a spec, and what of it stays behind: what the readers of all trainers share.

A value whose name says that it is secret goes no further than here.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from jobs.adapters.adapter import NO_ENVIRONMENT, NOT_KEPT, Omission, OptionRename, ReadBack
from jobs.catalog.value import Value

HIDDEN = "…"
_SECRET = re.compile(r"API_?KEY|TOKEN$|SECRET|PASSW|CREDENTIAL")
_SECRET_VARIABLE = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL")
_TOKENS = ("EOS_TOKEN", "PAD_TOKEN")  # of a tokenizer


class WrittenOption(Protocol):
    """An option or key of a command."""

    @property
    def option(self) -> str:
        """Its name as it was written."""
        ...

    @property
    def shown(self) -> str:
        """Its value as it may be shown."""
        ...


@dataclass(slots=True, kw_only=True)
class SpecParts:
    """The parts of a spec so far, which options were taken for them, and what did not get in.

    What was left out on purpose stands apart from what was not understood.
    """

    spec: dict[str, object] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)
    left_out: list[Omission] = field(default_factory=list)
    unread: list[Omission] = field(default_factory=list)

    def refuse(self, written: WrittenOption, why: str) -> None:
        """Name an option that was not understood."""
        self.unread.append(Omission(option=written.option, value=written.shown, why=why))

    def leave(self, written: WrittenOption, why: str) -> None:
        """Name an option that is left out on purpose."""
        self.left_out.append(Omission(option=written.option, value=written.shown, why=why))

    def read_back(
        self,
        *,
        algorithm: str,
        trainer: str,
        version: str,
        knobs: Mapping[str, Value],
        options: Iterable[str],
        translated: Sequence[OptionRename] = (),
        num_defaults: int = 0,
    ) -> ReadBack:
        """Return the whole; `options` are all that were written, of which those that stay behind are not understood."""
        behind = {each.option for each in (*self.left_out, *self.unread)}
        return ReadBack(
            spec={
                "algorithm": algorithm,
                "trainer": {"name": trainer, "version": version},
                **self.spec,
                "knobs": knobs,
            },
            understood=tuple(dict.fromkeys(option for option in options if option not in behind)),
            left_out=tuple(self.left_out),
            unread=tuple(self.unread),
            translated=tuple(dict.fromkeys(translated)),
            num_defaults=num_defaults,
        )


def shown(name: str, text: str) -> str:
    """Return the value of an option or key as it may be shown: nothing of what its name says is secret."""
    last = name.lstrip("-").rpartition(".")[2].upper()
    return HIDDEN if _SECRET.search(last) and last not in _TOKENS else text


def of_environment(name: str, value: str) -> Omission:
    """Return why a variable stays behind: it is no part of a spec, and its value no one's to read if it is a secret."""
    if _SECRET_VARIABLE.search(name.upper()):
        return Omission(option=name, value=HIDDEN, why=NOT_KEPT)
    return Omission(option=name, value=value, why=NO_ENVIRONMENT)
