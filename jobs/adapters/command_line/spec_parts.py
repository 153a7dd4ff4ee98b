"""What a command has said so far of a spec, and what of it stays behind: what the readers of all trainers share.

A value whose name says that it is secret goes no further than here.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from jobs.adapters.adapter import NO_ENVIRONMENT, NOT_KEPT, ONLY_SHELL, Omission, OptionRename, ReadBack
from jobs.catalog.spec.environment import why_no_name, why_no_variable
from jobs.catalog.value import Value
from profiling.redaction import secrets_of

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

    def take_environment(self, environment: Mapping[str, str], *, but: Mapping[str, str] | None = None) -> None:
        """Take variables that the command sets: with their values, secrets with their names alone.

        `but` says why some of them stay behind.
        """
        variables: dict[str, str] = {}
        secrets: list[str] = []
        for name, value in environment.items():
            is_secret = bool(_SECRET_VARIABLE.search(name.upper()) or secrets_of({name: value}))
            why = (but or {}).get(name, "") or (NO_ENVIRONMENT if why_no_name(name) else "")
            if not why and is_secret:
                secrets.append(name)
                why = NOT_KEPT
            elif not why and ("$" in value or "`" in value):
                why = ONLY_SHELL
            elif not why and why_no_variable(name, value):
                why = NO_ENVIRONMENT
            if why:
                self.left_out.append(Omission(option=name, value=HIDDEN if is_secret else value, why=why))
            else:
                variables[name] = value
        if variables or secrets:
            self.spec["environment"] = {"variables": variables, "secrets": secrets}

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
