"""The words of a command as options with their values, as argparse divides them."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from jobs.adapters.command_line.spec_parts import shown

_NEGATIVE = re.compile(r"-\d+|-\d*\.\d+|-\d+(\.\d*)?e[-+]?\d+")  # what argparse takes for a number


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandOption:
    """One option as it was written, its full name, and its values; `needs_shell`: only a shell knows one of them."""

    option: str
    name: str
    values: tuple[str, ...]
    needs_shell: bool = False

    @property
    def text(self) -> str:
        """The values as they were written."""
        return " ".join(self.values)

    @property
    def shown(self) -> str:
        """The values as they may be shown."""
        return shown(self.name, self.text)


def options_and_strays(words: Iterable[str]) -> tuple[list[CommandOption], list[str]]:
    """Return the options with the values that follow each, and the words that belong to none."""
    options: list[CommandOption] = []
    strays: list[str] = []
    for word in words:
        if word.startswith("--"):
            name, sign, value = word.partition("=")
            options.append(CommandOption(option=name, name=name, values=(value,) if sign else ()))
        elif options and (not word.startswith("-") or _NEGATIVE.fullmatch(word) or " " in word):
            options[-1] = replace(options[-1], values=(*options[-1].values, word))
        else:
            strays.append(word)
    return options, strays


def last_part(program: str) -> str:
    """Return the last part of a module's name or a script's path, without .py."""
    return program.rpartition("/")[2].removesuffix(".py").rpartition(".")[2]
