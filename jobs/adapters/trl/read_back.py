"""A TRL command or configuration as a spec: every option finds its knob or section, or is named with the reason why
not."""

from collections.abc import Mapping, Sequence

from jobs.adapters.adapter import (
    IS_DEFAULT,
    NO_OPTION,
    Omission,
    ReadBack,
)
from jobs.adapters.command_line.arguments import CommandOption
from jobs.adapters.command_line.shell_reader import MAX_HINTS, TOO_DEEP
from jobs.adapters.trl.command_reader import TrlCommand, command_of, nearest
from jobs.adapters.trl.options import SCRIPTS, TRAINER, defaults_of, why_not
from jobs.adapters.trl.sections import TrlSections, read_sections
from jobs.adapters.trl.values import TrlValues
from jobs.catalog.trainer import trainers
from jobs.catalog.value import value_text


def read_back(*, arguments: Sequence[str], version: str) -> ReadBack:
    """Return what a command or a YAML text says, as a spec for `version` ("" for the newest known one).

    Raises: ValueError with a sentence if the arguments are no command of TRL that trains, and no options of one.
    """
    target = version or trainers()[TRAINER].versions[0]
    try:
        return _read_back(arguments, target)
    except RecursionError:
        raise ValueError(TOO_DEEP) from None


def _read_back(arguments: Sequence[str], version: str) -> ReadBack:
    command = command_of(arguments, version)
    by_name = {written.name: written for written in command.options}  # of one that stands there twice the last counts
    sections = TrlSections(by_name=by_name)
    read_sections(command.algorithm, sections, command.datasets)
    values = TrlValues(algorithm=command.algorithm, version=version, sections=sections)
    values.read_all(command.launcher)
    num_defaults = 0
    for written in by_name.values():
        if written.name not in sections.taken:
            num_defaults += _name(command.algorithm, version, written, sections)
    _name_the_rest(command, sections)
    return sections.read_back(
        algorithm=command.algorithm,
        trainer=TRAINER,
        version=version,
        knobs=values.chosen(),
        options=(written.option for written in by_name.values()),
        num_defaults=num_defaults,
    )


def _name(algorithm: str, version: str, written: CommandOption, sections: TrlSections) -> bool:
    """Say of an option that became nothing why not; return True if it only repeats TRL's default."""
    defaults = defaults_of(algorithm, version)
    if written.name in defaults:
        if _is_default(written, defaults):
            sections.leave(written, IS_DEFAULT)
            return True
        sections.refuse(written, why_not(written.name))
    elif other := next((name for key, name in SCRIPTS.items() if written.name in defaults_of(key, version)), ""):
        sections.refuse(written, f"It is an option of trl {other}, not of trl {SCRIPTS[algorithm]}.")
    else:
        near = nearest(written.name, algorithm, version) if len(sections.unread) < MAX_HINTS else ""
        hint = f" Did you mean {near}?" if near else ""
        sections.refuse(written, f"TRL {version} has no such option for trl {SCRIPTS[algorithm]}.{hint}")
    return False


def _is_default(written: CommandOption, defaults: Mapping[str, object]) -> bool:
    default = defaults[written.name]
    if default is None:
        return written.text.lower() in ("none", "null", "")
    if isinstance(default, list):
        return list(written.values) == [str(item) for item in default]
    try:
        return float(written.text) == float(str(default))
    except ValueError:
        text = value_text(default) if isinstance(default, (bool, str)) else str(default)
        return written.text.lower() == text.lower()


def _name_the_rest(command: TrlCommand, sections: TrlSections) -> None:
    """Name words that belong to no option, and take the environment."""
    for stray in command.strays:
        sections.unread.append(Omission(option=stray, value="", why=NO_OPTION))
    sections.take_environment(command.env)
