"""An OpenRLHF command as a spec: every option finds its knob or section, or is named with the reason why not."""

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from jobs.adapters.adapter import (
    NO_ENVIRONMENT,
    NO_OPTION,
    NOT_KEPT,
    ONE_VALUE,
    ONLY_SHELL,
    ReadBack,
    Translated,
    Unread,
)
from jobs.adapters.command_line.shell_reader import MAX_HINTS
from jobs.adapters.openrlhf.command import Given, OpenRLHFCommand, command_of
from jobs.adapters.openrlhf.own_options import (
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
from jobs.adapters.openrlhf.sections import Said, algorithm_of, read_sections
from jobs.adapters.openrlhf.values import Values
from jobs.catalog.knob import applicable
from jobs.catalog.trainer import trainers

_SECRET = ("KEY", "TOKEN", "SECRET", "PASSWORD")
_HIDDEN = "…"
_MAY_BE_SECRET = re.compile(r"wandb|token|secret|passw|key")


def read_back(words: Sequence[str], version: str) -> ReadBack:
    """Return what a command of any known version says, as a spec for `version` ("" for the one it is written for).

    Raises: ValueError with a sentence if the words are no command of OpenRLHF that trains.
    """
    command = command_of(words, version)
    target = version or command.spoken
    by_name = _by_name(command)
    said = Said(flags=set(by_name), target=target)
    _take_sections(command, by_name, said, target)
    algorithm = algorithm_of(command.program, said)
    read_sections(command.program, said)
    values = Values(algorithm=algorithm, spoken=command.spoken, target=target, said=said)
    for given in by_name.values():
        if given.name not in said.taken and not values.take(given):
            _name(command, given, said)
    values.launch(command.pasted.before)
    values.finish(by_name)
    _name_the_rest(command, said)
    spec = {
        "algorithm": algorithm,
        "trainer": {"name": TRAINER, "version": target},
        **said.spec,
        "knobs": values.chosen(),
    }
    behind = {each.option for each in (*said.left_out, *said.unread)}
    return ReadBack(
        spec=spec,
        understood=tuple(given.option for given in by_name.values() if given.option not in behind),
        left_out=tuple(said.left_out),
        unread=tuple(said.unread),
        translated=tuple(dict.fromkeys(said.translated)),
    )


def _by_name(command: OpenRLHFCommand) -> dict[str, Given]:
    """Return the options by name; of one that stands there twice the last counts, as it does in argparse."""
    return {given.name: _hidden(given) for given in command.given}


def _hidden(given: Given) -> Given:
    """Return the option without what nobody may read: a key goes no further than here."""
    return replace(given, values=(_HIDDEN,) * len(given.values)) if given.name in WANDB_KEYS else given


def _take_sections(command: OpenRLHFCommand, by_name: Mapping[str, Given], said: Said, target: str) -> None:
    """Take what belongs to sections and to Pitwall, in whichever dialect it stands."""
    for option in (*SECTIONS, *OURS):
        if command.program not in option.programs:
            continue
        for name in (option.flat, option.dotted):
            given = by_name.get(name)
            if given is None or name in knob_options(command.program, command.spoken):
                continue
            said.taken.add(name)
            if given.needs_shell and option in SECTIONS:
                said.refuse(given, ONLY_SHELL)
            elif len(given.values) != 1:
                said.refuse(given, ONE_VALUE)
            else:
                said.fields[option.field] = given
                if name != option.name(target) and option in SECTIONS and option.field != "clip":
                    said.translated.append(Translated(option=given.option, now=option.name(target)))


def _name(command: OpenRLHFCommand, given: Given, said: Said) -> None:
    """Say of an option that became nothing why not."""
    program = command.program
    for version in (command.spoken, *trainers()[TRAINER].versions):
        if why := not_offered(program, version).get(given.name):
            said.leave(given, why)
            return
    if why := BEFORE.get(given.name):
        said.refuse(given, why)  # it meant something, which nothing says now
        return
    newest = trainers()[TRAINER].versions[0]
    if given.name in knob_options(program, command.spoken) | knob_options(program, newest):
        owners = sorted({a for a in algorithms_of(program) if given.name in _names_of(a, command.spoken)})
        said.leave(given, f"It means something to {', '.join(owners)} only." if owners else "It means nothing here.")
        return
    if _MAY_BE_SECRET.search(given.name):
        given = replace(given, values=(_HIDDEN,) * len(given.values))
    near = _near(given.name, program, command.spoken) if len(said.unread) < MAX_HINTS else ""
    hint = f" Did you mean {near}?" if near else ""
    said.refuse(given, f"OpenRLHF {command.spoken} has no such option for openrlhf.cli.{program}.{hint}")


def _names_of(algorithm: str, version: str) -> Iterator[str]:
    for knob in applicable(algorithm, TRAINER, version).values():
        if flag := knob.flag(trainer=TRAINER, version=version, algorithm=algorithm):
            yield from flag.names


def _near(name: str, program: str, version: str) -> str:
    """Return the option that was most likely meant, by its letters, or by its last part."""
    options = sorted(options_of(program, version))
    plain = {option: option.replace(".", "_").lstrip("-") for option in options}
    asked = name.replace(".", "_").lstrip("-")
    if is_dotted(version):
        endings = [option for option, text in plain.items() if text.endswith(f"_{asked}")]
        if len(endings) == 1:
            return endings[0]
    close = difflib.get_close_matches(asked, plain.values(), n=1, cutoff=0.6)
    return next((option for option, text in plain.items() if close and text == close[0]), "")


def _name_the_rest(command: OpenRLHFCommand, said: Said) -> None:
    """Name words that belong to no option, and the environment, which is no part of a spec."""
    for stray in command.strays:
        said.unread.append(Unread(option=stray, value="", why=NO_OPTION))
    for name, value in command.pasted.env.items():
        shown = _HIDDEN if any(part in name.upper() for part in _SECRET) else value
        why = NO_ENVIRONMENT
        if name == "NCCL_CUMEM_ENABLE":
            why = "OpenRLHF sets it itself for a vLLM before 0.16; set for a newer one it breaks NCCL's start."
        elif shown == _HIDDEN:
            why = NOT_KEPT
        said.left_out.append(Unread(option=name, value=shown, why=why))
