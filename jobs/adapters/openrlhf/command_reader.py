"""The arguments of an OpenRLHF command: which program, which options, and which version they are written for."""

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from jobs.adapters.command_line.arguments import CommandOption, last_part, options_and_strays
from jobs.adapters.command_line.shell_reader import ProgramCall, find_program
from jobs.adapters.openrlhf.options import PROGRAMS, TRAINER, options_of
from jobs.catalog.sentence import Sentence
from jobs.catalog.trainer import trainers

_GONE = ("train_ppo", "train_kd", "train_kto", "train_prm", "batch_inference", "interactive_chat")
_OTHERS = ("serve_rm", "lora_combiner")
_NO_PROGRAM = "openrlhf"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRLHFCommand:
    """A command: `dialect` is the version it seems to be written for, `strays` belong to no option."""

    program: str
    dialect: str
    options: tuple[CommandOption, ...]
    strays: tuple[str, ...]
    call: ProgramCall


def command_of(arguments: Sequence[str], version: str) -> OpenRLHFCommand:
    """Return what the arguments say; one that holds white space is shell text. `version` wins where several fit.

    Raises: ValueError with a sentence if they are no command that trains.
    """
    call = _call_of(arguments)
    program = _program(call.program)
    options, strays = options_and_strays(call.arguments)
    options = [replace(each, needs_shell=any(piece in each.text for piece in call.unknown)) for each in options]
    dialect = _version_of(program, [option.name for option in options], version)
    return OpenRLHFCommand(
        program=program,
        dialect=dialect,
        options=tuple(_in_full(option, options_of(program, dialect)) for option in options),
        strays=tuple(strays),
        call=call,
    )


def _call_of(arguments: Sequence[str]) -> ProgramCall:
    is_shell = len(arguments) == 1 and re.search(r"\s", arguments[0]) is not None
    for is_program in (_trains, _is_other):  # a script may do more than train
        call = find_program(arguments[0], is_program) if is_shell else _program_call(arguments, is_program)
        if call is not None:
            return call
    first = arguments[0].lstrip() if arguments else ""
    if re.match(r"--\w", first):
        bare = (
            find_program(f"{_NO_PROGRAM} {first}", _NO_PROGRAM.__eq__)
            if is_shell
            else ProgramCall(program="", arguments=tuple(arguments))
        )
        call = _bare(bare)
    if call is None:
        raise ValueError(
            Sentence(
                "This starts none of OpenRLHF's trainers. Paste a command that has openrlhf.cli.train_ppo_ray, "
                "train_sft, train_dpo or train_rm in it."
            )
        )
    return call


def _program_call(arguments: Sequence[str], is_program: Callable[[str], bool]) -> ProgramCall | None:
    for place, argument in enumerate(arguments):
        if is_program(argument):
            return ProgramCall(
                program=argument, arguments=tuple(arguments[place + 1 :]), before=tuple(arguments[:place])
            )
    return None


def _bare(call: ProgramCall | None) -> ProgramCall | None:
    """Return options without a program with the program that knows most of them."""
    if call is None:
        return None
    names = {argument.partition("=")[0] for argument in call.arguments if argument.startswith("--")}
    fitting = {program: max(_num_known(program, names).values()) for program in PROGRAMS}
    best = max(PROGRAMS, key=lambda program: fitting[program])
    return replace(call, program=f"openrlhf.cli.{best}") if fitting[best] else None


def _trains(argument: str) -> bool:
    return last_part(argument) in PROGRAMS and ("openrlhf" in argument or argument.endswith(".py"))


def _is_other(argument: str) -> bool:
    return last_part(argument) in (*_GONE, *_OTHERS) and ("openrlhf" in argument or argument.endswith(".py"))


def _program(argument: str) -> str:
    name = last_part(argument)
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
    texts = {"name": name, "programs": ", ".join(PROGRAMS)}
    raise ValueError(Sentence("{name} trains nothing. Paste a command of {programs}.", **texts))


def _num_known(program: str, names: Collection[str]) -> dict[str, int]:
    return {v: sum(name in options_of(program, v) for name in names) for v in trainers()[TRAINER].versions}


def _version_of(program: str, names: Collection[str], wanted: str) -> str:
    """Return the version that knows most of the options: the wanted one, or the newest, among equals."""
    num_known = _num_known(program, names)
    most = max(num_known.values())
    if num_known.get(wanted) == most:
        return wanted
    return next(version for version, number in num_known.items() if number == most)


def _in_full(written: CommandOption, options: Collection[str]) -> CommandOption:
    """Return the option by its full name: argparse takes the beginning of one for it, where only one begins so."""
    if written.name in options:
        return written
    meant = [option for option in options if option.startswith(written.name)]
    return replace(written, name=meant[0]) if len(meant) == 1 else written
