"""A text as options of TRL: a shell command of one of its scripts or of its command line, or a YAML configuration."""

import difflib
import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from jobs.adapters.command_line.arguments import CommandOption, last_part, options_and_strays
from jobs.adapters.command_line.shell_reader import ProgramCall, find_program
from jobs.adapters.command_line.yaml_text import YamlUnreadable, yaml_of
from jobs.adapters.trl.options import PER_NODE, SCRIPTS, defaults_of
from jobs.catalog.sentence import Sentence

_CLI = "trl"
_NO_PROGRAM = "--"
_OPTION = re.compile(r"\s*--\w")  # not the --- that a YAML text may begin with
_NOTHING = "None"  # as TRL takes it for an option that may be left open
_SUBCOMMAND = re.compile(r"[a-z][a-z-]*")
_LOSS, _LOSSES_OF_KTO = "--loss_type", ("kto", "apo_zero_unpaired")
_ALGORITHMS = {script: algorithm for algorithm, script in SCRIPTS.items()}
LAUNCHER_OPTIONS = (*PER_NODE, "--accelerate_config", "--config_file", "--num_machines", "--nnodes")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrlCommand:
    """What a text says: options of the script, those of its launcher, words that belong to no option, the environment,
    and the entries of a configuration's mixture of data."""

    algorithm: str
    options: tuple[CommandOption, ...]
    launcher: tuple[CommandOption, ...] = ()
    strays: tuple[str, ...] = ()
    env: Mapping[str, str]
    datasets: tuple[Mapping[str, Any], ...] = ()


def command_of(arguments: Sequence[str], version: str) -> TrlCommand:
    """Return what the arguments say; one argument alone may be a whole text, of a shell or YAML.

    Raises: ValueError with a sentence if it is neither a command of TRL that trains nor a YAML text of its options.
    """
    text = arguments[0] if len(arguments) == 1 else shlex.join(arguments)
    call = (
        find_program(text, _is_script)
        or find_program(text, _is_command_line, _ALGORITHMS.__contains__)
        or find_program(text, _is_command_line, _is_subcommand)
    )
    if call is not None:
        return _of_call(call, version)
    if _OPTION.match(text):
        bare = find_program(f"{_NO_PROGRAM} {text.lstrip()}", _NO_PROGRAM.__eq__)
        if bare is not None:
            return _of_call(bare, version)
    return _of_yaml(text, version)


def nearest(name: str, algorithm: str, version: str) -> str:
    """Return the option that was most likely meant, "" if none is alike."""
    return next(iter(difflib.get_close_matches(name, defaults_of(algorithm, version), n=1, cutoff=0.75)), "")


def _is_script(word: str) -> bool:
    parts = word.replace("/", ".").removesuffix(".py").split(".")
    return parts[-1] in _ALGORITHMS and (word.endswith(".py") or parts[:2] == ["trl", "scripts"])


def _is_command_line(word: str) -> bool:
    return word.rpartition("/")[2] == _CLI


def _is_subcommand(word: str) -> bool:
    return _SUBCOMMAND.fullmatch(word) is not None


def _of_call(call: ProgramCall, version: str) -> TrlCommand:
    words = list(call.arguments)
    program = "" if call.program == _NO_PROGRAM else last_part(call.program)
    if program == _CLI:
        program = words.pop(0) if words else ""
        if program not in _ALGORITHMS:
            text = "trl {program} trains nothing that is offered here. Paste a command of trl {programs}."
            raise ValueError(Sentence(text, program=program, programs=", ".join(_ALGORITHMS)))
    options, strays = options_and_strays(words)
    algorithm = _ALGORITHMS.get(program) or _algorithm_of(options, version)
    named = [_named(option, algorithm, version, call.unknown) for option in options]
    before, _ = options_and_strays(call.before)
    return TrlCommand(
        algorithm=algorithm,
        options=tuple(option for option in named if option.name not in LAUNCHER_OPTIONS),
        launcher=tuple(option for option in (*before, *named) if option.name in LAUNCHER_OPTIONS),
        strays=tuple(strays),
        env=call.env,
    )


def _named(option: CommandOption, algorithm: str, version: str, unknown: Sequence[str]) -> CommandOption:
    """Return the option by its full name: TRL takes hyphens, `no_` before a switch, and the beginning of one name."""
    defaults = defaults_of(algorithm, version)
    name = "--" + option.name[2:].replace("-", "_")
    values = option.values
    if name not in defaults and option.name in LAUNCHER_OPTIONS:
        name = option.name
    elif name.startswith("--no_") and defaults.get("--" + name[5:]) is True:
        name, values = "--" + name[5:], ("false",)
    elif name not in defaults:
        meant = [full for full in defaults if full.startswith(name)]
        name = meant[0] if len(meant) == 1 else name
    if not values and isinstance(defaults.get(name), bool):
        values = ("true",)
    needs_shell = any(piece in option.text for piece in unknown)
    return replace(option, name=name, values=values, needs_shell=needs_shell)


def _algorithm_of(options: Iterable[CommandOption], version: str) -> str:
    """Return the algorithm whose script knows most of the options; the first of SCRIPTS among equals. KTO has no
    option that DPO does not have, but for two weights, and a loss of its own."""
    wanted = {"--" + option.name.lstrip("-").replace("-", "_"): option.text for option in options}
    if wanted.get(_LOSS) in _LOSSES_OF_KTO:
        return "kto"
    return max(SCRIPTS, key=lambda algorithm: len(wanted.keys() & defaults_of(algorithm, version).keys()))


def _of_yaml(text: str, version: str) -> TrlCommand:
    table = _table_of(text)
    env = table.pop("env", None)
    mixture = table.pop("datasets", None)
    rows = tuple(row for row in mixture if isinstance(row, dict)) if isinstance(mixture, list) else ()
    options = [CommandOption(option=key, name=f"--{key}", values=tuple(_texts(value))) for key, value in table.items()]
    algorithm = _algorithm_of(options, version)
    named = [_named(option, algorithm, version, ()) for option in options]
    defaults = defaults_of(algorithm, version)
    named = [option for option in named if option.values != (_NOTHING,) or defaults.get(option.name) is not None]
    if not rows and not any(option.name in defaults_of(algorithm, version) for option in named):
        raise ValueError(Sentence("No key of this text is an option of TRL. Paste the whole command, or the config."))
    return TrlCommand(
        algorithm=algorithm,
        options=tuple(option for option in named if option.name not in LAUNCHER_OPTIONS),
        launcher=tuple(option for option in named if option.name in LAUNCHER_OPTIONS),
        env={str(name): str(value) for name, value in env.items()} if isinstance(env, dict) else {},
        datasets=rows,
    )


def _table_of(text: str) -> dict[str, Any]:
    """Return a YAML text's mapping. Raises: ValueError with a sentence."""
    try:
        loaded = yaml_of(text)
    except YamlUnreadable as error:
        message = (
            "This is no command of TRL (trl sft, trl grpo and others, or a script of trl.scripts), and no YAML text in "
            "line {line} either. Paste the whole command, or the config."
        )
        raise ValueError(Sentence(message, line=error.line)) from error
    if not isinstance(loaded, dict) or not loaded:
        message = (
            "This is no command of TRL: it starts neither trl with one of its trainers nor a script of trl.scripts, "
            "and it is no YAML text of options. Paste the whole command, or the config."
        )
        raise ValueError(Sentence(message))
    return {str(key): value for key, value in loaded.items()}


def _texts(value: object) -> Iterator[str]:
    """Yield a value of YAML as the words that a command line has for it."""
    if value is None:
        yield _NOTHING
    elif isinstance(value, bool):
        yield "true" if value else "false"
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item) if not isinstance(item, (list, dict)) else (json.dumps(item, default=str),)
    elif isinstance(value, dict):
        yield json.dumps(value, default=str)
    else:
        yield str(value)
