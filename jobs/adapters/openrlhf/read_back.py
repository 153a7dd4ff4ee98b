"""An OpenRLHF command as a spec: every option finds its knob or section, or is named with the reason why not."""

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from jobs.adapters.adapter import (
    NO_OPTION,
    ONE_VALUE,
    ONLY_SHELL,
    Omission,
    OptionRename,
    ReadBack,
)
from jobs.adapters.command_line.arguments import CommandOption
from jobs.adapters.command_line.shell_reader import MAX_HINTS, TOO_DEEP
from jobs.adapters.command_line.spec_parts import HIDDEN
from jobs.adapters.openrlhf.command_reader import OpenRLHFCommand, command_of
from jobs.adapters.openrlhf.options import (
    BEFORE,
    OURS,
    SECTIONS,
    TRAINER,
    WANDB_KEYS,
    algorithms_of,
    is_dotted,
    knob_options,
    not_offered,
    options_of,
)
from jobs.adapters.openrlhf.sections import CommandSections, algorithm_of, read_sections
from jobs.adapters.openrlhf.values import Values
from jobs.catalog.knob import applicable
from jobs.catalog.trainer import trainers

_MAY_BE_SECRET = re.compile(r"wandb|token|secret|passw|key")


def read_back(*, arguments: Sequence[str], version: str) -> ReadBack:
    """Return what a command of any known version says, as a spec for `version` ("" for the one it is written for).

    Raises: ValueError with a sentence if the arguments are no command of OpenRLHF that trains.
    """
    try:
        return _read_back(arguments, version)
    except RecursionError:
        raise ValueError(TOO_DEEP) from None


def _read_back(arguments: Sequence[str], version: str) -> ReadBack:
    command = command_of(arguments, version)
    target = version or command.dialect
    by_name = _by_name(command)
    sections = CommandSections(flags=set(by_name), target=target)
    _take_sections(command, by_name, sections, target)
    algorithm = algorithm_of(command.program, sections)
    read_sections(command.program, sections)
    values = Values(algorithm=algorithm, dialect=command.dialect, target=target, sections=sections)
    for written in by_name.values():
        if written.name not in sections.taken and not values.take(written):
            _name(command, written, sections)
    values.launch(command.call.before)
    values.finish(by_name)
    _name_the_rest(command, sections)
    return sections.read_back(
        algorithm=algorithm,
        trainer=TRAINER,
        version=target,
        knobs=values.chosen(),
        options=(written.option for written in by_name.values()),
        translated=sections.translated,
    )


def _by_name(command: OpenRLHFCommand) -> dict[str, CommandOption]:
    """Return the options by name; of one that stands there twice the last counts, as it does in argparse."""
    return {written.name: _hidden(written) for written in command.options}


def _hidden(written: CommandOption) -> CommandOption:
    """Return the option without what nobody may read: a key goes no further than here."""
    return replace(written, values=(HIDDEN,) * len(written.values)) if written.name in WANDB_KEYS else written


def _take_sections(
    command: OpenRLHFCommand, by_name: Mapping[str, CommandOption], sections: CommandSections, target: str
) -> None:
    """Take what belongs to sections and to Pitwall, in whichever dialect it stands."""
    for option in (*SECTIONS, *OURS):
        if command.program not in option.programs:
            continue
        for name in (option.flat, option.dotted):
            written = by_name.get(name)
            if written is None or name in knob_options(command.program, command.dialect):
                continue
            sections.taken.add(name)
            if written.needs_shell and option in SECTIONS:
                sections.refuse(written, ONLY_SHELL)
            elif len(written.values) != 1:
                sections.refuse(written, ONE_VALUE)
            else:
                sections.fields[option.field] = written
                if name != option.name(target) and option in SECTIONS and option.field != "clip":
                    sections.translated.append(OptionRename(option=written.option, now=option.name(target)))


def _name(command: OpenRLHFCommand, written: CommandOption, sections: CommandSections) -> None:
    """Say of an option that became nothing why not."""
    program = command.program
    for version in (command.dialect, *trainers()[TRAINER].versions):
        if why := not_offered(program, version).get(written.name):
            sections.leave(written, why)
            return
    if why := BEFORE.get(written.name):
        sections.refuse(written, why)  # it meant something, which nothing says now
        return
    newest = trainers()[TRAINER].versions[0]
    if written.name in knob_options(program, command.dialect) | knob_options(program, newest):
        owners = sorted({a for a in algorithms_of(program) if written.name in _names_of(a, command.dialect)})
        sections.leave(
            written, f"It means something to {', '.join(owners)} only." if owners else "It means nothing here."
        )
        return
    if _MAY_BE_SECRET.search(written.name):
        written = replace(written, values=(HIDDEN,) * len(written.values))
    near = _near(written.name, program, command.dialect) if len(sections.unread) < MAX_HINTS else ""
    hint = f" Did you mean {near}?" if near else ""
    sections.refuse(written, f"OpenRLHF {command.dialect} has no such option for openrlhf.cli.{program}.{hint}")


def _names_of(algorithm: str, version: str) -> Iterator[str]:
    for knob in applicable(algorithm, TRAINER, version).values():
        if flag := knob.flag(trainer=TRAINER, version=version, algorithm=algorithm):
            yield from flag.names


def _near(name: str, program: str, version: str) -> str:
    """Return the option that was most likely meant, by its letters, or by its last part."""
    options = sorted(options_of(program, version))
    plain = {option: option.replace(".", "_").lstrip("-") for option in options}
    wanted = name.replace(".", "_").lstrip("-")
    if is_dotted(version):
        endings = [option for option, text in plain.items() if text.endswith(f"_{wanted}")]
        if len(endings) == 1:
            return endings[0]
    close = difflib.get_close_matches(wanted, plain.values(), n=1, cutoff=0.6)
    return next((option for option, text in plain.items() if close and text == close[0]), "")


def _name_the_rest(command: OpenRLHFCommand, sections: CommandSections) -> None:
    """Name arguments that belong to no option, and take the environment."""
    for stray in command.strays:
        sections.unread.append(Omission(option=stray, value="", why=NO_OPTION))
    why = "OpenRLHF sets it itself for a vLLM before 0.16; set for a newer one it breaks NCCL's start."
    sections.take_environment(command.call.env, but={"NCCL_CUMEM_ENABLE": why})
