"""The words of an OpenRLHF command: which program, which options, and which version they are written for."""

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from jobs.adapters.command_line.shell_reader import Pasted, find_program
from jobs.adapters.openrlhf.own_options import PROGRAMS, TRAINER, options_of
from jobs.catalog.sentence import Sentence
from jobs.catalog.trainer import trainers

_GONE = ("train_ppo", "train_kd", "train_kto", "train_prm", "batch_inference", "interactive_chat")
_OTHERS = ("serve_rm", "lora_combiner")
_NO_PROGRAM = "openrlhf"
_NEGATIVE = re.compile(r"-\d+|-\d*\.\d+")  # what argparse takes for a number


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """One option as it was written, its full name, and its values; `needs_shell`: only a shell knows one of them."""

    option: str
    name: str
    values: tuple[str, ...]
    needs_shell: bool = False

    @property
    def text(self) -> str:
        """The values as they were written."""
        return " ".join(self.values)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRLHFCommand:
    """A command: `spoken` is the version it seems to be written for, `strays` are words that belong to no option."""

    program: str
    spoken: str
    given: tuple[Given, ...]
    strays: tuple[str, ...]
    pasted: Pasted


def command_of(words: Sequence[str], version: str) -> OpenRLHFCommand:
    """Return what the words say; one word that holds white space is shell text. `version` wins where several fit.

    Raises: ValueError with a sentence if they are no command that trains.
    """
    pasted = _pasted(words)
    program = _program(pasted.program)
    given, strays = _options(pasted.words)
    given = [replace(each, needs_shell=any(piece in each.text for piece in pasted.unknown)) for each in given]
    spoken = _version_of(program, [option.name for option in given], version)
    return OpenRLHFCommand(
        program=program,
        spoken=spoken,
        given=tuple(_in_full(option, options_of(program, spoken)) for option in given),
        strays=tuple(strays),
        pasted=pasted,
    )


def _pasted(words: Sequence[str]) -> Pasted:
    is_shell = len(words) == 1 and re.search(r"\s", words[0]) is not None
    for is_program in (_trains, _is_other):  # a script may do more than train
        found = find_program(words[0], is_program) if is_shell else _found(words, is_program)
        if found is not None:
            return found
    first = words[0].lstrip() if words else ""
    if first.startswith("--"):
        bare = (
            find_program(f"{_NO_PROGRAM} {first}", _NO_PROGRAM.__eq__)
            if is_shell
            else Pasted(program="", words=tuple(words))
        )
        found = _bare(bare)
    if found is None:
        raise ValueError(
            Sentence(
                "This starts none of OpenRLHF's trainers. Paste a command that has openrlhf.cli.train_ppo_ray, "
                "train_sft, train_dpo or train_rm in it."
            )
        )
    return found


def _found(words: Sequence[str], is_program: Callable[[str], bool]) -> Pasted | None:
    for place, word in enumerate(words):
        if is_program(word):
            return Pasted(program=word, words=tuple(words[place + 1 :]), before=tuple(words[:place]))
    return None


def _bare(found: Pasted | None) -> Pasted | None:
    """Return options without a program with the program that knows most of them."""
    if found is None:
        return None
    names = {word.partition("=")[0] for word in found.words if word.startswith("--")}
    fitting = {program: max(_num_known(program, names).values()) for program in PROGRAMS}
    best = max(PROGRAMS, key=lambda program: fitting[program])
    return replace(found, program=f"openrlhf.cli.{best}") if fitting[best] else None


def _trains(word: str) -> bool:
    return _last_part(word) in PROGRAMS and ("openrlhf" in word or word.endswith(".py"))


def _is_other(word: str) -> bool:
    return _last_part(word) in (*_GONE, *_OTHERS) and ("openrlhf" in word or word.endswith(".py"))


def _last_part(word: str) -> str:
    return word.rpartition("/")[2].removesuffix(".py").rpartition(".")[2]


def _program(word: str) -> str:
    name = _last_part(word)
    if name in PROGRAMS:
        return name
    if name in _GONE:
        raise ValueError(
            Sentence(
                "{name} is gone from OpenRLHF since 0.9.10 at the latest. It trains with {programs}.",
                name=name,
                programs=", ".join(PROGRAMS),
            )
        )
    words = {"name": name, "programs": ", ".join(PROGRAMS)}
    raise ValueError(Sentence("{name} trains nothing. Paste a command of {programs}.", **words))


def _options(words: Iterable[str]) -> tuple[list[Given], list[str]]:
    """Return the options with the values that follow each, as argparse divides them, and what belongs to none."""
    given: list[Given] = []
    strays: list[str] = []
    for word in words:
        if word.startswith("--"):
            name, has_value, value = word.partition("=")
            given.append(Given(option=name, name=name, values=(value,) if has_value else ()))
        elif given and (not word.startswith("-") or _NEGATIVE.fullmatch(word) or " " in word):
            given[-1] = replace(given[-1], values=(*given[-1].values, word))
        else:
            strays.append(word)
    return given, strays


def _num_known(program: str, names: Collection[str]) -> dict[str, int]:
    return {v: sum(name in options_of(program, v) for name in names) for v in trainers()[TRAINER].versions}


def _version_of(program: str, names: Collection[str], wanted: str) -> str:
    """Return the version that knows most of the options: the wanted one, or the newest, among equals."""
    known = _num_known(program, names)
    most = max(known.values())
    if known.get(wanted) == most:
        return wanted
    return next(version for version, number in known.items() if number == most)


def _in_full(given: Given, options: Collection[str]) -> Given:
    """Return the option by its full name: argparse takes the beginning of one for it, where only one begins so."""
    if given.name in options:
        return given
    meant = [option for option in options if option.startswith(given.name)]
    return replace(given, name=meant[0]) if len(meant) == 1 else given
