"""A call text as settings of verl: a shell command with Hydra overrides, or a YAML text of them."""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from jobs.adapters.adapter import OF_HYDRA, ONLY_SHELL, Omission
from jobs.adapters.command_line.hydra import Plain, read
from jobs.adapters.command_line.shell_reader import ProgramCall, find_program
from jobs.adapters.command_line.spec_parts import HIDDEN, shown
from jobs.adapters.command_line.yaml_text import YamlUnreadable, yaml_of
from jobs.adapters.verl.older_keys import CONFIGS, OTHER_PROGRAMS
from jobs.adapters.verl.settings import RUN, SFT
from jobs.catalog.sentence import Sentence

PROGRAMS = {
    "main_ppo": RUN,
    "main_ppo_sync": RUN,
    "sft_trainer": SFT,
    "sft_trainer_ray": SFT,
    "fsdp_sft_trainer": SFT,
}
_VALUED = {
    "--config-name": "name",
    "-cn": "name",
    "--config-path": "path",
    "-cp": "path",
    "--config-dir": "path",
    "-cd": "path",
    "--package": "other",
    "-p": "other",
    "--info": "other",
}
NODES = ("--nnodes",)
PER_NODE = ("--nproc-per-node", "--nproc_per_node")
_PLACE = re.compile(r"(^|[._])(path|files)$")  # stays as written: the form asks for it, and shows what to replace
_OVERRIDE = re.compile(r"(\+\+|\+|~)?[A-Za-z_]\w*\.[\w.]*\w=")
_LAUNCHER = re.compile(r"--?[A-Za-z][\w-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyValue:
    """One setting as it was written: `option` is the key with its mark, `text` the value as it stood there."""

    option: str
    key: str
    value: Plain
    text: str

    @property
    def shown(self) -> str:
        """The value as it may be shown."""
        return shown(self.key, self.text)


@dataclass(frozen=True, slots=True, kw_only=True)
class VerlCommand:
    """What a text says: the program ("" where a YAML text does not tell), its settings, and what could not be read.

    `left_out` is what is no setting of verl, but an option of Hydra; `env` are the variables that it sets.
    """

    program: str
    settings: tuple[KeyValue, ...]
    unread: tuple[Omission, ...]
    left_out: tuple[Omission, ...] = ()
    is_whole_config: bool = False
    env: Mapping[str, str] = field(default_factory=dict)


def command_of(arguments: Sequence[str]) -> VerlCommand:
    """Return what the arguments say; one argument alone may be a whole text, of a shell or YAML.

    Raises: ValueError with a sentence if it is neither a command of verl nor a YAML text of settings.
    """
    text = arguments[0] if len(arguments) == 1 else shlex.join(arguments)
    call = find_program(text, lambda argument: _module(argument) != "")
    if call is not None:
        return _of_command(call)
    if len(arguments) > 1 and all(_looks_like_override(argument) for argument in arguments):
        return _of_overrides("", arguments)
    return _of_yaml(text)


def _module(argument: str) -> str:
    """Return the last part of a program of verl, named as a module or by the path of its file."""
    name = argument.replace("/", ".").removesuffix(".py")
    last = name.rpartition(".")[2]
    is_verl = "verl" in name.split(".") or "recipe" in name.split(".")
    return last if is_verl and last in (*PROGRAMS, *OTHER_PROGRAMS) else ""


def _looks_like_override(argument: str) -> bool:
    return _OVERRIDE.match(argument) is not None


def _of_command(call: ProgramCall) -> VerlCommand:
    module = _module(call.program)
    if module in OTHER_PROGRAMS:
        texts = {"program": call.program, "what": OTHER_PROGRAMS[module]}
        raise ValueError(Sentence("{program} is {what}. Paste a command of main_ppo or sft_trainer.", **texts))
    command = _of_overrides(PROGRAMS[module], call.arguments, unknown=call.unknown)
    launcher = list(_of_launcher(call.before)) if PROGRAMS[module] == SFT else []
    return VerlCommand(
        program=command.program,
        settings=(*launcher, *command.settings),
        unread=command.unread,
        left_out=command.left_out,
        env=call.env,
    )


def _of_overrides(program: str, arguments: Sequence[str], *, unknown: Sequence[str] = ()) -> VerlCommand:
    """Return the settings; `unknown` is what only a shell could have filled in."""
    settings: list[KeyValue] = []
    unread: list[Omission] = []
    left_out: list[Omission] = []
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        if argument.startswith("-"):
            option, sign, value = argument.partition("=")
            kind = _VALUED.get(option, "")
            if kind and not sign and rest:
                value = rest.pop(0)
            _take_option(option, kind, value, settings, unread, left_out)
            continue
        if any(piece in argument for piece in unknown):
            key, _, value = argument.partition("=")
            unread.append(Omission(option=key, value=shown(key, value), why=ONLY_SHELL))
            if not _PLACE.search(key):
                continue
        try:
            override = read(argument)
        except ValueError as error:
            key, _, value = argument.partition("=")
            why = "It is no value that Hydra reads." if shown(key, value) == HIDDEN else str(error)
            unread.append(Omission(option=key, value=shown(key, value), why=why))
            continue
        if override.mark == "~":
            unread.append(
                Omission(option=argument, value="", why="A key is taken out of the config; no knob can say that.")
            )
            continue
        option, _, value = argument.partition("=")
        settings += _spread(option, override.key, override.value, value)
    return VerlCommand(program=program, settings=tuple(settings), unread=tuple(unread), left_out=tuple(left_out))


def _take_option(
    option: str, kind: str, value: str, settings: list[KeyValue], unread: list[Omission], left_out: list[Omission]
) -> None:
    if kind == "name":
        name = value.removesuffix(".yaml")
        if name not in CONFIGS:
            why = f"The config {name!r} is not one of verl's main trainers: {', '.join(CONFIGS)}."
            unread.append(Omission(option=option, value=value, why=why))
        elif CONFIGS[name]:
            settings.append(KeyValue(option=option, key="model_engine", value=CONFIGS[name], text=value))
    elif kind == "path":
        why = "A folder with your own config is not available here. Paste its YAML text instead."
        unread.append(Omission(option=option, value=value, why=why))
    else:
        left_out.append(Omission(option=option, value=value, why=OF_HYDRA))


def _spread(option: str, key: str, value: Plain, text: str) -> Iterator[KeyValue]:
    """Return a setting; one that is a dict as one setting per key of it."""
    if isinstance(value, Mapping) and value:
        for name, item in value.items():
            yield from _spread(option, f"{key}.{name}", item, str(item))
    else:
        yield KeyValue(option=option, key=key, value=value, text=text)


def _of_launcher(before: Sequence[str]) -> Iterator[KeyValue]:
    """Return how many processes torchrun was asked for."""
    for place, argument in enumerate(before):
        option, sign, value = argument.partition("=")
        if not _LAUNCHER.fullmatch(option):
            continue
        value = value if sign else next(iter(before[place + 1 : place + 2]), "")
        if option in (*NODES, *PER_NODE) and value.isdecimal():
            key = "trainer.nnodes" if option in NODES else "trainer.n_gpus_per_node"
            yield KeyValue(option=option, key=key, value=int(value), text=value)


def _of_yaml(text: str) -> VerlCommand:
    try:
        loaded = yaml_of(text)
    except YamlUnreadable as error:
        raise ValueError(
            Sentence(
                "This is not a command of verl (verl.trainer.main_ppo or verl.trainer.sft_trainer), and no YAML "
                "text in line {line} either. Paste the whole command, or the config.",
                line=error.line,
            )
        ) from error
    if isinstance(loaded, list) and loaded and all(isinstance(item, str) and "=" in item for item in loaded):
        return _of_overrides("", loaded)  # Hydra's own record of a run: .hydra/overrides.yaml
    if not isinstance(loaded, Mapping) or not loaded:
        raise ValueError(
            Sentence(
                "This is not a command of verl: it starts neither verl.trainer.main_ppo nor "
                "verl.trainer.sft_trainer, and it is no YAML text of settings. Paste the whole command, or the "
                "config."
            )
        )
    settings: list[KeyValue] = []
    for key, value in loaded.items():
        if str(key) not in ("defaults", "hydra"):
            settings += _spread(str(key), str(key), value, str(value))
    settings = [KeyValue(option=item.key, key=item.key, value=item.value, text=item.text) for item in settings]
    return VerlCommand(program="", settings=tuple(settings), unread=(), is_whole_config=True)
