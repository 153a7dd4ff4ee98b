"""The contract of a knob, and the loader of `knobs/*.toml`: a table per knob, its id is `<file>.<table>`."""

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from jobs.catalog.storable import is_storable

KnobType = Literal["int", "float", "bool", "choice", "text"]
Scalar = float | int | str | bool


class KnobValueInvalid(ValueError):
    """A knob was given a value it does not take; the text is a sentence for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Knob:
    """One knob: what it takes, what it means, and to which algorithms and trainers it applies.

    `defaults` maps an algorithm to its default where it differs from `default`. `effects` says what raising it does to
    memory, speed and stability. `flags` gives the trainer's own spelling.
    """

    id: str
    label: str
    type: KnobType
    default: Scalar
    defaults: Mapping[str, Scalar]
    low: float
    high: float
    choices: tuple[str, ...]
    unit: str
    help: str
    effects: Mapping[str, str]
    source: str
    algorithms: tuple[str, ...]
    flags: Mapping[str, str]
    is_essential: bool

    @property
    def group(self) -> str:
        """The file it stands in, which is its group in the form."""
        return self.id.partition(".")[0]

    def default_for(self, algorithm: str) -> Scalar:
        """Return the default value under `algorithm`."""
        return self.defaults.get(algorithm, self.default)

    def allowed(self) -> str:
        """Say in words what the knob takes."""
        if self.type == "choice":
            return f"one of {', '.join(self.choices)}"
        if self.type == "bool":
            return "true or false"
        if self.type == "text":
            return "text"
        what = "a whole number" if self.type == "int" else "a number"
        low, high = _spell(self.low), _spell(self.high)
        return f"{what} of at least {low}" if math.isinf(self.high) else f"{what} from {low} to {high}"

    def check(self, value: object) -> Scalar:
        """Return `value` as the knob's type; text is read as people type it ("3e-4", "on").

        Raises: KnobValueInvalid, saying what is allowed.
        """
        refusal = KnobValueInvalid(f"{value!r} is not allowed for {self.label}. Use {self.allowed()}.")
        if self.type == "bool":
            return _read_bool(value, refusal)
        if self.type == "text":
            if isinstance(value, str) and is_storable(value):
                return value
            raise refusal
        if self.type == "choice":
            if isinstance(value, str) and value in self.choices:
                return value
            raise refusal
        return self._read_number(value, refusal)

    def _read_number(self, value: object, refusal: KnobValueInvalid) -> Scalar:
        if isinstance(value, bool) or not isinstance(value, (int, float, str)):
            raise refusal
        try:
            number = float(value.replace(",", "") if isinstance(value, str) else value)
        except (ValueError, OverflowError):
            raise refusal from None
        if not math.isfinite(number) or not self.low <= number <= self.high:
            raise refusal
        if self.type == "int":
            if not number.is_integer():
                raise refusal
            return int(number)
        return number


def _spell(bound: float) -> str:
    """Write a bound as people read it: 1,048,576 and 0.05."""
    return f"{bound:,.0f}" if float(bound).is_integer() else f"{bound:g}"


def _read_bool(value: object, refusal: KnobValueInvalid) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in ("true", "on", "yes", "1"):
        return True
    if isinstance(value, str) and value.lower() in ("false", "off", "no", "0", ""):
        return False
    raise refusal


@cache
def knobs() -> Mapping[str, Knob]:
    """Return every knob of the catalogue by id, in the order of files and tables."""
    found: dict[str, Knob] = {}
    folder = files("jobs.catalog") / "knobs"
    for file in sorted(folder.iterdir(), key=lambda f: f.name):
        if file.name.endswith(".toml"):
            group = file.name.removesuffix(".toml")
            for name, table in tomllib.loads(file.read_text(encoding="utf-8")).items():
                found[f"{group}.{name}"] = _knob(f"{group}.{name}", table)
    return found


def applicable(algorithm: str, trainer: str) -> Mapping[str, Knob]:
    """Return the knobs that mean something to `algorithm` under `trainer`, by id."""
    return {k: v for k, v in knobs().items() if algorithm in v.algorithms and trainer in v.flags}


def _knob(knob_id: str, table: Mapping[str, Any]) -> Knob:
    value = table["value"]
    low, high = value.get("range", [-math.inf, math.inf])
    return Knob(
        id=knob_id,
        label=table["label"],
        type=value["type"],
        default=value["default"],
        defaults=value.get("defaults", {}),
        low=float(low),
        high=float(high),
        choices=tuple(value.get("choices", ())),
        unit=value.get("unit", ""),
        help=table["help"],
        effects=table.get("effects", {}),
        source=table["source"],
        algorithms=tuple(table.get("algorithms", ("grpo", "sft"))),
        flags=table["flag"],
        is_essential=table.get("essential", False),
    )
