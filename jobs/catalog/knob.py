"""The contract of a knob, and the loader of `knobs/*.toml`: a table per knob, its id is `<file>.<table>`.

Options of each trainer stand in `flags` (jobs.catalog.flag). `needs` says when it means something:
`needs = [{ knob = "train.dynamic_batch", is = [true] }]`, or `above = 0` in place of `is`; while that is not so, its
input is greyed with the reason, and it is not written into a command.

`algorithms` are ids and families; of a family those count that a trainer with the knob trains by it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal

from jobs.catalog.algorithm import algorithms, expand
from jobs.catalog.flag import Flag, flags_of
from jobs.catalog.sentence import Sentence
from jobs.catalog.tables import folder_entries
from jobs.catalog.trainer import BUILT_IN, trainers
from jobs.catalog.value import Scalar, Value, is_storable, plain_number, shown

KnobType = Literal["int", "float", "bool", "choice", "text"]


class KnobValueInvalid(ValueError):
    """A knob was given a value it does not take; the text is a sentence for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnobCondition:
    """Another knob, and the values of it under which this one means something: some, or all above a number."""

    knob: str
    values: tuple[Value, ...] = ()
    above: float | None = None

    def is_met(self, value: Value) -> bool:
        """Return True if the other knob has such a value."""
        if self.above is None:
            return value in self.values
        return isinstance(value, (int, float)) and value > self.above


@dataclass(frozen=True, slots=True, kw_only=True)
class Knob:
    """One knob: what it takes, what it means, and to which algorithms and trainers it applies.

    `default` is the built-in trainer's, and anyone's who has none of their own; `defaults` overrides it, by
    "trainer/algorithm", algorithm, "trainer@device" or trainer. An optional knob may be None: not set, left to the
    trainer. `effects` says what raising it does to memory, speed and stability. A privileged knob names code or a
    command that the trainer will run, or a file that it unpickles, takes its orders from or overwrites; only admins may
    set it. The text of one that `has_lines` is a file's.
    """

    id: str
    label: str
    type: KnobType
    default: Value
    defaults: Mapping[str, Value]
    low: float
    high: float
    choices: tuple[str, ...]
    unit: str
    help: str
    effects: Mapping[str, str]
    source: str
    algorithms: tuple[str, ...]
    flags: tuple[Flag, ...]
    needs: tuple[KnobCondition, ...]
    is_essential: bool
    is_optional: bool
    is_privileged: bool
    has_lines: bool

    @property
    def group(self) -> str:
        """The file it stands in, which is its group in the form."""
        return self.id.partition(".")[0]

    def flag(self, *, trainer: str, version: str, algorithm: str) -> Flag | None:
        """Return a trainer's option for the knob in a version for an algorithm; None if it has no such knob."""
        if algorithm not in self.algorithms:
            return None
        return next((f for f in self.flags if f.holds(trainer=trainer, version=version, algorithm=algorithm)), None)

    def under(self, flag: Flag) -> "Knob":
        """Return the knob as this option takes it: its choices, its range, and whether it may be left unset.

        Not set is no value where the trainer's own default is known, nor for the built-in trainer, which has none; but
        a text that names something may be missing there, and a rule says so.
        """
        low, high = flag.limits or (self.low, self.high)
        may_be_unset = flag.trainer != BUILT_IN or self.type == "text"
        is_optional = self.is_optional and may_be_unset and flag.own_default() is None
        return replace(self, choices=flag.choices or self.choices, low=low, high=high, is_optional=is_optional)

    @property
    def trainers(self) -> tuple[str, ...]:
        """The trainers that have it, in any version, for any algorithm."""
        return tuple(dict.fromkeys(f.trainer for f in self.flags))

    def default_for(self, algorithm: str, trainer: str = BUILT_IN, version: str = "", device: str = "auto") -> Value:
        """Return the value that the knob has where nobody chose one.

        What makes the algorithm comes first (DAPO's upper clip), then what is right on the device (bfloat16 on GPUs),
        then the trainer's own default where it is known.
        """
        for key in (f"{trainer}/{algorithm}", algorithm, f"{trainer}@{device}", trainer):
            if key in self.defaults:
                return _unset(self.defaults[key])
        if trainer != BUILT_IN and (flag := self.flag(trainer=trainer, version=version, algorithm=algorithm)):
            own = flag.own_default()
            if own is not None:
                return self.check(str(own) if self.type in ("choice", "text") else own)
            if self.is_optional:
                return None
        return self.default

    def allowed(self) -> Sentence:
        """Say in words what the knob takes."""
        return Sentence("{what}, or nothing", what=self._allowed()) if self.is_optional else self._allowed()

    def _allowed(self) -> Sentence:
        if self.type == "choice":
            return Sentence("one of {choices}", choices=", ".join(self.choices))
        if self.type == "bool":
            return Sentence("true or false")
        if self.type == "text":
            return Sentence("text")
        bounds = {"low": _text_of(self.low), "high": _text_of(self.high)}
        if math.isinf(self.high):
            if self.type == "int":
                return Sentence("a whole number of at least {low}", low=bounds["low"])
            return Sentence("a number of at least {low}", low=bounds["low"])
        return number_from(bounds["low"], bounds["high"], is_int=self.type == "int")

    def check(self, value: object) -> Value:
        """Return `value` as the knob's type; text is read as people type it ("3e-4", "on"), "" and None as not set.

        Raises: KnobValueInvalid, saying what is allowed.
        """
        if self.is_optional and (value is None or (isinstance(value, str) and not value.strip())):
            return None
        return self.check_set(value)

    def check_set(self, value: object) -> Scalar:
        """Return `value` as the knob's type, as `check` does, but refuse "not set" too. Raises: KnobValueInvalid."""
        read = self._read(value)
        if read is None:
            words = {"value": shown(value), "label": Sentence(self.label), "allowed": self.allowed()}
            raise KnobValueInvalid(Sentence("{value} is not allowed for {label}. Use {allowed}.", **words))
        return read

    def _read(self, value: object) -> Scalar | None:
        """Return `value` as the knob's type; None if it does not take it."""
        if self.type == "bool":
            return _read_bool(value)
        if self.type == "text":
            return value if isinstance(value, str) and is_storable(value) else None
        if self.type == "choice":
            return value if isinstance(value, str) and value in self.choices else None
        return self._read_number(value)

    def _read_number(self, value: object) -> Scalar | None:
        if isinstance(value, bool) or not isinstance(value, (int, float, str)):
            return None
        try:
            number = float(plain_number(value) if isinstance(value, str) else value)
        except (ValueError, OverflowError):
            return None
        if not math.isfinite(number) or not self.low <= number <= self.high:
            return None
        if self.type == "int":
            return int(number) if number.is_integer() else None
        return number


def number_from(low: str, high: str, *, is_int: bool) -> Sentence:
    """Say in words between which bounds a number lies."""
    if is_int:
        return Sentence("a whole number from {low} to {high}", low=low, high=high)
    return Sentence("a number from {low} to {high}", low=low, high=high)


def _unset(value: Value) -> Value:
    """Return None for the "" by which a table of defaults, which has no null, says "not set"."""
    return None if value == "" else value


def _text_of(bound: float) -> str:
    """Write a bound as people read it: 1,048,576 and 0.05."""
    return f"{bound:,.0f}" if float(bound).is_integer() else f"{bound:g}"


def _read_bool(value: object) -> bool | None:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in ("true", "on", "yes", "1"):
        return True
    if isinstance(value, str) and value.lower() in ("false", "off", "no", "0", ""):
        return False
    return None


@cache
def knobs() -> Mapping[str, Knob]:
    """Return every knob of the catalogue by id, in the order of files and tables."""
    return {knob_id: _knob(knob_id, table) for knob_id, table in folder_entries("knobs")}


@cache
def applicable(algorithm: str, trainer: str, version: str = "") -> Mapping[str, Knob]:
    """Return the knobs that mean something to `algorithm` under a version of `trainer`, by id, as it takes them."""
    if trainer not in trainers() or not trainers()[trainer].offers(algorithm, version):
        return {}
    by_id = {}
    for knob_id, knob in knobs().items():
        if flag := knob.flag(trainer=trainer, version=version, algorithm=algorithm):
            by_id[knob_id] = knob.under(flag)
    return by_id


@cache
def knob_flags(algorithm: str, trainer: str, version: str) -> Mapping[str, tuple[Knob, Flag]]:
    """Return the applicable knobs by id, each with the trainer's option for it."""
    with_flags = {}
    for knob_id, knob in applicable(algorithm, trainer, version).items():
        flag = knob.flag(trainer=trainer, version=version, algorithm=algorithm)
        assert flag is not None
        with_flags[knob_id] = (knob, flag)
    return with_flags


@cache
def default_values(algorithm: str, trainer: str, version: str, device: str = "auto") -> Mapping[str, Value]:
    """Return the values of the applicable knobs where nobody chose any, by id."""
    here = applicable(algorithm, trainer, version)
    return {knob_id: knob.default_for(algorithm, trainer, version, device) for knob_id, knob in here.items()}


def is_live(knob_id: str, values: Mapping[str, Value]) -> bool:
    """Return True if the knob means something beside these values; a knob that the run does not have asks nothing."""
    for need in knobs()[knob_id].needs:
        if need.knob in values and not (need.is_met(values[need.knob]) and is_live(need.knob, values)):
            return False
    return True


def _knob(knob_id: str, table: Mapping[str, Any]) -> Knob:
    value, flags = table["value"], flags_of(knob_id, table["flags"])
    low, high = value.get("range", [-math.inf, math.inf])
    is_optional = value.get("optional", False)
    return Knob(
        id=knob_id,
        label=table["label"],
        type=value["type"],
        default=value.get("default") if is_optional else value["default"],
        defaults=value.get("defaults", {}),
        low=float(low),
        high=float(high),
        choices=tuple(value.get("choices", ())),
        unit=value.get("unit", ""),
        help=table["help"],
        effects=table.get("effects", {}),
        source=table["source"],
        algorithms=_algorithms(knob_id, table["algorithms"], flags),
        flags=flags,
        needs=tuple(
            KnobCondition(knob=need["knob"], values=tuple(need.get("is", ())), above=need.get("above"))
            for need in table.get("needs", ())
        ),
        is_essential=table.get("essential", False),
        is_optional=is_optional,
        is_privileged=table.get("privileged", False),
        has_lines=value.get("lines", False),
    )


def _algorithms(knob_id: str, names: Sequence[str], flags: Sequence[Flag]) -> tuple[str, ...]:
    offered = {
        algorithm
        for flag in flags
        for algorithm in trainers()[flag.trainer].algorithms
        if not flag.algorithms or algorithm in flag.algorithms
    }
    meant = (name for name in expand(names) if name in names or name in offered)
    return tuple(name for name in meant if knob_id not in algorithms()[name].without)
