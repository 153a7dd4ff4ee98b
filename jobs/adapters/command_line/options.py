"""A spec's knobs as a trainer's arguments, and back: what the adapters of other trainers share.

A knob is written where its value differs from the trainer's own default, or where the catalogue knows none, and where
it means something beside the others (its `needs`). Values whose unit differs between trainers go through a
`Conversion`, named by the flag's `form`.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby

from jobs.catalog.flag import FORMS, Flag
from jobs.catalog.knob import Knob, is_live, knob_flags
from jobs.catalog.sentence import Sentence
from jobs.catalog.spec.runspec import RunSpec
from jobs.catalog.value import Scalar, Value, value_text

Values = Mapping[str, Value]
PAIR = ("first", "second")


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    """How a knob's value becomes the trainer's, where units differ.

    `write(values, value)` gets every knob's value and this one's, and returns theirs. `read(values, theirs)` gets the
    knobs that are known so far and the trainer's text; it raises ValueError with a sentence where ours cannot say it.
    """

    write: Callable[[Values, Value], Scalar | None]
    read: Callable[[Values, str], Value]


Conversions = Mapping[str, Conversion]


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """One option or key with what is written for it: (True,) for a bare option, two values for a pair."""

    name: str
    values: tuple[Scalar, ...]
    form: str
    knob: str


def whole(text: str) -> int:
    """Return a trainer's text as a whole number; 1e8 is one. Raises: ValueError with a sentence."""
    try:
        number = float(text)
    except ValueError:
        raise ValueError(Sentence("{value} is not a number.", value=repr(text))) from None
    if not number.is_integer():
        raise ValueError(Sentence("{value} is not a whole number.", value=repr(text)))
    return int(number)


def knob_arguments(spec: RunSpec, conversions: Conversions) -> list[Argument]:
    """Return every argument that the spec's knobs need, in the catalogue's order, pairs together."""
    here = knob_flags(spec.algorithm, spec.trainer.name, spec.trainer.version)
    values = {knob_id: chosen.value for knob_id, chosen in spec.knobs.items()}
    written = [one for knob_id, one in here.items() if is_live(knob_id, values)]
    arguments: list[Argument] = []
    pairs = sorted((s for s in written if s[1].form in PAIR), key=lambda s: (s[1].name, s[1].form))
    for _, members in groupby(pairs, key=lambda s: s[1].name):
        arguments += _pair(list(members), values)
    for knob, flag in written:
        if flag.form not in PAIR:
            arguments += _single(knob, flag, values, conversions)
    place = {knob_id: number for number, knob_id in enumerate(here)}
    return sorted(arguments, key=lambda argument: place[argument.knob])


def theirs(flag: Flag, value: Value, values: Values, conversions: Conversions) -> Scalar | None:
    """Return what a trainer is told for a knob's value; None where nothing is to be said."""
    if flag.form not in FORMS:
        return conversions[flag.form].write(values, value)
    if value is None:
        return None
    if flag.form == "negated":
        return not value
    return flag.values.get(value_text(value), value)


def ours(knob: Knob, flag: Flag, text: str, values: Values, conversions: Conversions) -> Value:
    """Return the knob's value of a trainer's text.

    Raises: ValueError (KnobValueInvalid is one) with a sentence if the knob does not take it.
    """
    if flag.form not in FORMS:
        return conversions[flag.form].read(values, text)
    if flag.form == "negated":
        return not knob.check_set(text)
    names = {value_text(their): our for our, their in flag.values.items()}
    return knob.check(names.get(text, names.get(text.lower(), text)))


def _single(knob: Knob, flag: Flag, values: Values, conversions: Conversions) -> Iterable[Argument]:
    value = theirs(flag, values[knob.id], values, conversions)
    if value is None or (flag.default is not None and _same(value, flag.default)):
        return []
    if flag.form in ("switch", "negated") and value is False and flag.default is None:
        return []
    return [Argument(name=name, values=(value,), form=flag.form, knob=knob.id) for name in flag.names]


def _pair(members: list[tuple[Knob, Flag]], values: Values) -> Iterable[Argument]:
    chosen = [values[knob.id] for knob, _ in members]
    set_ones = [value for value in chosen if value is not None]
    if len(set_ones) != len(members):
        return []
    if all(
        flag.default is not None and _same(value, flag.default)
        for value, (_, flag) in zip(set_ones, members, strict=True)
    ):
        return []
    knob, flag = members[0]
    return [Argument(name=name, values=tuple(set_ones), form="pair", knob=knob.id) for name in flag.names]


def _same(value: Scalar, default: Scalar) -> bool:
    """True if both say the same: 1 is 1.0, and "2" is 2, but True is not 1."""
    if isinstance(value, bool) or isinstance(default, bool):
        return value is default
    return value == default or value_text(value) == value_text(default)
