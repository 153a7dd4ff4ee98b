"""The numbers that physics does not give: efficiencies, overheads, factors. Data, each with its evidence and reason.

`constants/*.toml` hold a table per constant; its name is `<file>.<table>`. A project may set others in their place.
"""

import math
import tomllib
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, fields, replace
from functools import cache
from importlib.resources import files
from typing import Literal

from jobs.catalog.sentence import Sentence
from jobs.planner.constant_groups import (
    DecodeConstants,
    EngineConstants,
    EstimateConstants,
    MemoryConstants,
    NetworkConstants,
    SpeedConstants,
)

Evidence = Literal["measured", "assumed", "set"]
GROUPS = {
    "decode": DecodeConstants,
    "engine": EngineConstants,
    "estimate": EstimateConstants,
    "memory": MemoryConstants,
    "network": NetworkConstants,
    "speed": SpeedConstants,
}
"""By the name of the file without its ending."""
FULL_NAMES = {group: {field.name: f"{group}.{field.name}" for field in fields(kind)} for group, kind in GROUPS.items()}
"""Of each group: the whole name of each of its constants, by the name that it has in the group."""
SET = Sentence("set by the project")
_KEYS = {"value", "low", "high", "unit", "evidence", "source", "reason", "label"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant:
    """One number: `low` and `high` bound what it may be; `evidence` is measured (a log or a run), assumed, or set (by
    somebody who gave no evidence).

    `source` names where it was read or measured, `reason` says why it is needed at all. `is_changed`: it is not the one
    that is shipped. `spread`: how many times more or less what it scales may be, where few runs tell; 1 without.
    """

    name: str
    label: str
    value: float
    low: float
    high: float
    unit: str
    evidence: Evidence
    source: str
    reason: str
    is_changed: bool = False
    spread: float = 1.0


class ConstantInvalid(ValueError):
    """A constant was given a value that it does not take; `name` is its name, the text a sentence for people."""

    def __init__(self, name: str, message: str) -> None:
        self.name = name
        super().__init__(message)


class Constants:
    """All constants: the values as `constants.<file>.<table>`, and each with its evidence by that name. Immutable."""

    def __init__(self, constants: Mapping[str, Constant]) -> None:
        self._constants = dict(constants)
        self.decode = DecodeConstants(**self._values("decode"))
        self.engine = EngineConstants(**self._values("engine"))
        self.estimate = EstimateConstants(**self._values("estimate"))
        self.memory = MemoryConstants(**self._values("memory"))
        self.network = NetworkConstants(**self._values("network"))
        self.speed = SpeedConstants(**self._values("speed"))

    def _values(self, group: str) -> dict[str, float]:
        return {name: self._constants[full].value for name, full in FULL_NAMES[group].items()}

    def value(self, name: str) -> float:
        """Return the value of a constant that is chosen by its name. Raises: KeyError."""
        return self._constants[name].value

    def all(self) -> tuple[Constant, ...]:
        """Return every constant, in the order of the files."""
        return tuple(self._constants.values())

    def get(self, name: str) -> Constant:
        """Return a constant with its evidence. Raises: KeyError."""
        return self._constants[name]

    def with_values(self, values: Mapping[str, object]) -> "Constants":
        """Return the constants with some of them replaced, as somebody typed them.

        Raises: ConstantInvalid for a name that is not known and a value that is no number from its low to its high.
        """
        return self._with(values, "set", SET)

    def measured(self, values: Mapping[str, object], source: str, spread: float = 1.0) -> "Constants":
        """Return the constants with some of them replaced by what was measured; `source` says where, `spread` how many
        times more or less what they scale may be.

        Raises: ConstantInvalid, as with_values.
        """
        return self._with(values, "measured", source, spread)

    def _with(self, values: Mapping[str, object], evidence: Evidence, source: str, spread: float = 1.0) -> "Constants":
        made = copy(self)
        made._constants = changed = dict(self._constants)
        for name, value in values.items():
            if name not in changed:
                raise ConstantInvalid(name, Sentence("There is no constant {name!r}.", name=name))
            number = _checked(changed[name], value)
            changed[name] = replace(
                changed[name], value=number, evidence=evidence, source=source, spread=spread, is_changed=True
            )
        for group in {name.partition(".")[0] for name in values}:  # of the others nothing has changed
            setattr(made, group, GROUPS[group](**made._values(group)))
        return made


def _checked(constant: Constant, value: object) -> float:
    """Return a value that the constant takes. Raises: ConstantInvalid."""
    label = Sentence(constant.label)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        text = Sentence("{value!r} is not allowed for {label}. Use a number.", value=value, label=label)
        raise ConstantInvalid(constant.name, text)
    if not constant.low <= value <= constant.high:
        text = Sentence(
            "{value!r} is not allowed for {label}. Use a number from {low:g} to {high:g}.",
            value=value,
            label=label,
            low=constant.low,
            high=constant.high,
        )
        raise ConstantInvalid(constant.name, text)
    return float(value)


@cache
def shipped_constants() -> Constants:
    """Return the constants as shipped. Raises: ValueError, naming the file and table, for one badly written."""
    by_name: dict[str, Constant] = {}
    folder = files("jobs.planner") / "constants"
    for file in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if not file.name.endswith(".toml"):
            continue
        group = file.name.removesuffix(".toml")
        for key, table in tomllib.loads(file.read_text(encoding="utf-8")).items():
            name = f"{group}.{key}"
            if set(table) != _KEYS:
                raise ValueError(f"{name}: a constant has exactly the keys {', '.join(sorted(_KEYS))}.")
            by_name[name] = Constant(name=name, **table)
            if not table["low"] <= table["value"] <= table["high"]:
                raise ValueError(f"{name}: {table['value']} is not from {table['low']} to {table['high']}.")
            if table["evidence"] not in ("measured", "assumed"):
                raise ValueError(f"{name}: evidence is measured or assumed, not {table['evidence']!r}.")
    named = {full for names in FULL_NAMES.values() for full in names.values()}
    if strange := sorted(named.symmetric_difference(by_name)):
        raise ValueError(f"{strange[0]}: a constant stands both in constants/*.toml and in constant_groups.py.")
    return Constants(by_name)
