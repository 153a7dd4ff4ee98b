"""A verl command as a spec: every setting finds its knob, or is named with the reason why it does not."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache

from jobs.adapters.adapter import IS_DEFAULT, Omission, OptionRename, ReadBack
from jobs.adapters.command_line.hydra import Interpolation, Plain
from jobs.adapters.command_line.options import ours
from jobs.adapters.command_line.shell_reader import MAX_HINTS, TOO_DEEP
from jobs.adapters.verl.command_reader import KeyValue, VerlCommand, command_of
from jobs.adapters.verl.keys import keys_of, nearest
from jobs.adapters.verl.older_keys import INERT, INERT_SINCE, REMOVED, RENAMED, translated, why_not
from jobs.adapters.verl.options import option_names
from jobs.adapters.verl.sections import Sections, Settings, algorithm_of, kl_of, loggers_of, overlong_of, read_sections
from jobs.adapters.verl.settings import RUN, SFT
from jobs.adapters.verl.units import TOGETHER, VERL_CONVERSIONS, options_text
from jobs.catalog.algorithm import is_in
from jobs.catalog.flag import FORMS, Flag
from jobs.catalog.knob import Knob, KnobValueInvalid, default_values, knob_flags, knobs
from jobs.catalog.sentence import Sentence, sentence_of
from jobs.catalog.trainer import as_version, trainers
from jobs.catalog.value import Value, value_text

TRAINER = "verl"
Entry = tuple[Knob, Flag]
PLACES = (
    *("data.train_files", "data.val_files", "data.prompt_key", "data.messages_key"),
    *("actor_rollout_ref.model.path", "model.path", "critic.model.path"),
)
"""Keys of model and data: what verl has there is an example, and somebody may mean just that."""


def read_back(*, arguments: Sequence[str], version: str) -> ReadBack:
    """Return what a command or a config of any version says, as a spec for `version` ("" for the newest known).

    Raises: ValueError with a sentence if the arguments are no command of verl, and no config.
    """
    try:
        return _read_back(arguments, version)
    except RecursionError:
        raise ValueError(TOO_DEEP) from None


def _read_back(arguments: Sequence[str], version: str) -> ReadBack:
    version = version or trainers()[TRAINER].versions[0]
    command = command_of(arguments)
    program = command.program or _guessed(command)
    defaults = keys_of(program, version)
    settings, changed = _translated(program, command, version, defaults)
    settings = _resolved(settings, defaults)
    sections = Sections(version=version, left_out=list(command.left_out), unread=list(command.unread))
    sections.take_environment(command.env)
    algorithm = algorithm_of(program, settings, defaults, sections)
    if not trainers()[TRAINER].offers(algorithm, version):
        algorithm = "grpo"  # of its kin the one that every version has
    values = _Values(algorithm, version, sections)
    following = {name for name in values.following() if defaults.get(name) is not None}
    always = {*PLACES, *following, *(() if command.is_whole_config else ("trainer.logger",))}
    chosen = _not_default(settings, defaults, always)
    repeated = {key: setting for key, setting in settings.items() if key not in chosen}
    settings = chosen
    read_sections(program, settings, sections)
    values.take_together(loggers_of(settings, sections))
    if is_in(algorithm, "rl"):
        values.take_together(kl_of(settings, defaults, sections) | overlong_of(settings, sections))
    values.take(settings)
    for key, setting in settings.items():
        if key not in sections.taken:
            _name(program, key, setting, defaults, values, sections)
    understood = dict(settings)
    if not command.is_whole_config:
        ours = {*values.by_name, *(each.name for each in option_names(version=version) if each.spec_fields)}
        understood |= {key: setting for key, setting in repeated.items() if key in ours}
        for key, setting in repeated.items():
            if key not in ours:
                sections.leave(setting, IS_DEFAULT)
    return sections.read_back(
        algorithm=algorithm,
        trainer=TRAINER,
        version=version,
        knobs=values.chosen(),
        options=(setting.option for setting in understood.values()),
        translated=changed,
        num_defaults=len(repeated) if command.is_whole_config else 0,
    )


def _guessed(command: VerlCommand) -> str:
    is_rl = any(setting.key.startswith(("actor_rollout_ref.", "algorithm.", "critic.")) for setting in command.settings)
    return RUN if is_rl else SFT


def _translated(
    program: str, command: VerlCommand, version: str, defaults: Mapping[str, Plain]
) -> tuple[dict[str, KeyValue], list[OptionRename]]:
    """Return the settings by their key in this version; of a key that stands there twice the last one counts."""
    renamed: dict[str, KeyValue] = {}
    changed = []
    others = _names_of_other_versions(version)
    for setting in command.settings:
        now = translated(program, setting.key, version)
        now = now if now in defaults else others.get(now, now)
        is_null = setting.value is None and command.is_whole_config  # an older name in a whole config, left empty
        if now not in (setting.key, setting.option) and not is_null:
            changed.append(OptionRename(option=setting.option, now=now))
        if now == setting.key or not (is_null or now in renamed):
            renamed[now] = setting
    return renamed, changed


@cache
def _names_of_other_versions(version: str) -> dict[str, str]:
    """Return the first name in this version of every key that the catalogue names otherwise in another."""
    names: dict[str, str] = {}
    for knob in knobs().values():
        own_flags = [flag for flag in knob.flags if flag.trainer == TRAINER]
        for algorithm in knob.algorithms:
            now = knob.flag(trainer=TRAINER, version=version, algorithm=algorithm)
            if now is None:
                continue
            for flag in own_flags:
                if flag.algorithms and algorithm not in flag.algorithms:
                    continue
                for place, name in enumerate(flag.names):
                    if name not in now.names:
                        names[name.lstrip("+")] = now.names[min(place, len(now.names) - 1)].lstrip("+")
    here = {name.lstrip("+") for knob in knobs().values() for name in _current(knob, version)}
    return {old: new for old, new in names.items() if old not in here}


def _current(knob: Knob, version: str) -> list[str]:
    flags = [knob.flag(trainer=TRAINER, version=version, algorithm=algorithm) for algorithm in knob.algorithms]
    return [name for flag in flags if flag is not None for name in flag.names]


def _resolved(settings: Settings, defaults: Mapping[str, Plain]) -> dict[str, KeyValue]:
    """Replace values that name another key by what that key says; what is not found stays as it is written."""
    resolved = dict(settings)
    for key, setting in settings.items():
        if isinstance(setting.value, Interpolation) or (
            isinstance(setting.value, str) and setting.value.startswith("${")
        ):
            name = str(setting.value).removeprefix("${").removeprefix("oc.select:").rstrip("}").split(",")[0].strip()
            if name in settings and name != key:
                value = settings[name].value
            elif name in defaults:
                value = defaults[name]
            else:
                continue
            resolved[key] = KeyValue(option=setting.option, key=setting.key, value=value, text=setting.text)
    return resolved


def _not_default(settings: Settings, defaults: Mapping[str, Plain], always: Collection[str]) -> dict[str, KeyValue]:
    """Leave out what only repeats verl's default, as most of a whole config does: it says no more than nothing does."""
    return {
        key: setting
        for key, setting in settings.items()
        if key in always or key not in defaults or not _is_same(setting.value, defaults[key])
    }


def _name(
    program: str, key: str, setting: KeyValue, defaults: Mapping[str, Plain], values: "_Values", sections: Sections
) -> None:
    """Say of a setting that became no knob why not."""
    knob_of_key = {flag.names[0].lstrip("+"): knob for knob, flag in values.flags.values()}
    if (why := why_not(INERT, key)) and as_version(values.version) >= as_version(INERT_SINCE):
        sections.leave(setting, why)
    elif key in defaults:
        default = (
            "nothing"
            if defaults[key] is None
            else value_text(defaults[key])
            if not isinstance(defaults[key], list)
            else "its own"
        )
        sections.refuse(setting, f"There is no knob for it; verl keeps its default, {default}.")
    elif why := why_not(REMOVED, key):
        sections.refuse(setting, why)
    elif other := next((p for p in RENAMED if p != program and key in keys_of(p, values.version)), ""):
        sections.refuse(setting, f"It is a key of verl.trainer.{other}, not of verl.trainer.{program}.")
    else:
        near = nearest(key, [*knob_of_key, *defaults]) if len(sections.unread) < MAX_HINTS else ""
        label = f" ({knob_of_key[near].label})" if near in knob_of_key else ""
        hint = f" Did you mean {near}{label}?" if near else ""
        sections.refuse(setting, f"verl {values.version} has no such key.{hint}")


def _is_same(value: Plain, default: Plain) -> bool:
    if isinstance(value, bool) or isinstance(default, bool):
        return value is default
    return bool(value == default) or (value in (None, "", [], {}) and default in (None, "", [], {}))


class _Values:
    """The knobs' values: what the settings say, and verl's own defaults where they say nothing."""

    def __init__(self, algorithm: str, version: str, sections: Sections) -> None:
        self.algorithm, self.version = algorithm, version
        self.sections = sections
        self.flags = knob_flags(algorithm, TRAINER, version)
        self.by_name: dict[str, list[Entry]] = {}
        for knob, flag in self.flags.values():
            for name in flag.names:
                self.by_name.setdefault(name.lstrip("+"), []).append((knob, flag))
        self.defaults = default_values(algorithm, TRAINER, version)
        self.read: dict[str, Value] = {}

    def following(self) -> Iterator[str]:
        """Return the keys that follow others where nobody sets them: their default says nothing of its own."""
        for name, entries in self.by_name.items():
            if any(flag.default is None for _, flag in entries):
                yield name

    def take(self, settings: Settings) -> None:
        """Read every setting that is a knob's; those whose unit depends on others come last."""
        later: list[tuple[Knob, Flag, KeyValue]] = []
        for key, setting in settings.items():
            if key in self.sections.taken or key not in self.by_name:
                continue
            self.sections.taken.add(key)
            for knob, flag in self.by_name[key]:
                if flag.form in TOGETHER:
                    continue
                if flag.form not in FORMS:
                    later.append((knob, flag, setting))
                else:
                    self._set(knob, flag, setting)
        self._take_engine_options(settings)
        self._fill()
        for knob, flag, setting in later:
            self._set(knob, flag, setting)
        for knob, flag in self.flags.values():
            is_converted = flag.form not in FORMS and flag.form not in TOGETHER
            if is_converted and knob.id not in self.read and flag.default is not None:
                self._set_converted_default(knob, flag)

    def _take_engine_options(self, settings: Settings) -> None:
        """Gather what is below a key whose knob holds all of it as one text."""
        for knob, flag in self.flags.values():
            if flag.form == "engine_options":
                start = flag.name.lstrip("+") + "."
                own = {k: g for k, g in settings.items() if k.startswith(start) and k not in self.sections.taken}
                if own:
                    options = {key.removeprefix(start): setting.value for key, setting in own.items()}
                    self.read[knob.id] = options_text(options)
                    self.sections.taken |= set(own)

    def take_together(self, together: Mapping[str, Plain]) -> None:
        """Take knobs that several settings made together."""
        for knob_id, value in together.items():
            if knob_id in self.flags:
                knob, _ = self.flags[knob_id]
                try:
                    self.read[knob_id] = knob.check(value)
                except KnobValueInvalid as error:
                    self.sections.unread.append(Omission(option=knob_id, value=str(value), why=sentence_of(error)))

    def chosen(self) -> dict[str, Value]:
        """Return the values that are not the catalogue's defaults for this algorithm and version."""
        values = {}
        for knob_id, default in self.defaults.items():
            if knob_id in self.read and self.read[knob_id] != default:
                values[knob_id] = self.read[knob_id]
        return values

    def _fill(self) -> None:
        """Set what nothing was said about to verl's own default, where the algorithm's would be another."""
        for knob_id, (knob, flag) in self.flags.items():
            if knob_id in self.read or flag.form not in FORMS:
                continue
            own = flag.own_default()
            if own is not None:
                self.read[knob_id] = knob.check(str(own) if knob.type in ("choice", "text") else own)

    def _set(self, knob: Knob, flag: Flag, setting: KeyValue) -> None:
        try:
            value = self._value(knob, flag, setting.value)
        except ValueError as error:
            self.sections.refuse(setting, sentence_of(error))
            return
        if knob.id in self.read and self.read[knob.id] != value and flag.form in FORMS:
            why = f"{knob.label} is one knob here, and another key of it already says {value_text(self.read[knob.id])}."
            self.sections.refuse(setting, why)
            return
        self.read[knob.id] = value

    def _value(self, knob: Knob, flag: Flag, value: Plain) -> Value:
        for our, their in flag.values.items():
            if _text(their) == _text(value):
                return knob.check(our)
        if flag.form in ("first", "second"):
            if not isinstance(value, list) or len(value) != 2:
                raise ValueError(
                    Sentence("{label} is one of two numbers: write [first,second].", label=Sentence(knob.label))
                )
            value = value[flag.form == "second"]
        if isinstance(value, list):
            value = ",".join(value_text(_scalar(item)) for item in value)
        if value is None or value == "":
            if not knob.is_optional and value is None:
                texts = {"label": Sentence(knob.label), "allowed": knob.allowed()}
                raise ValueError(Sentence("{label} must be set here. Use {allowed}.", **texts))
            return knob.check(value)
        text = str(value) if knob.type == "text" and not isinstance(value, bool) else value_text(_scalar(value))
        return ours(knob, flag, text, self._all(), VERL_CONVERSIONS)

    def _set_converted_default(self, knob: Knob, flag: Flag) -> None:
        assert flag.default is not None
        try:
            self.read[knob.id] = self._value(knob, flag, flag.default)
        except ValueError as error:
            why = f"verl's default is {value_text(flag.default)}: {error}"
            self.sections.unread.append(Omission(option=flag.name, value=value_text(flag.default), why=why))

    def _all(self) -> dict[str, Value]:
        return {**self.defaults, **self.read}


def _text(value: Plain) -> str:
    return "null" if value is None else value_text(_scalar(value))


def _scalar(value: Plain) -> Value:
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)
