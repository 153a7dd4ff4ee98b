"""Values of a config.json, each checked when it is read: what cannot be used is refused with its key."""

import reprlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from jobs.catalog.sentence import Sentence


class ShapeUnreadable(ValueError):
    """A config cannot be read as a language model; `key` is the one at fault, the text a sentence for people."""

    def __init__(self, key: str, message: str) -> None:
        self.key = key
        super().__init__(message)


# Far above any model, and low enough that every product of sizes stays an exact and printable number.
SIZE_LIMIT = 10_000_000
LAYER_LIMIT = 1000
_REPR = reprlib.Repr()
_REPR.maxlevel, _REPR.maxdict, _REPR.maxstring = 2, 2, 40


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigValues:
    """A config, or a table of it. `name` is what the model is called in messages, `path` stands before keys.

    `defaults` are what the family's own code takes for a key that is absent; `aliases` what a family calls a key: its
    own name counts where the usual one is not there; `foreign` are keys that its code does not take. `read_keys`
    gathers the keys that anybody asked for: what is left of a config is what nobody understood.
    """

    values: Mapping[str, Any]
    name: str = ""
    path: str = ""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)
    foreign: frozenset[str] = frozenset()
    read_keys: set[str] = field(default_factory=set, compare=False, repr=False)

    def value(self, key: str) -> Any:
        """Return what stands under a key, or under the family's own name for it; where both are absent what the
        family's own code takes, and None where it is null."""
        names = self._names(key)
        self.read_keys.update(names)
        there = [each for each in names if each in self.values]
        if there:
            return next((self.values[each] for each in there if self.values[each] is not None), None)
        return self.defaults.get(key, self.defaults.get(self.aliases.get(key, key)))

    def is_said(self, key: str) -> bool:
        """Return True if the config itself has a value under the key, or under the family's own name for it."""
        return any(self.values.get(each) is not None for each in self._names(key))

    def _names(self, key: str) -> tuple[str, ...]:
        """Return the names under which a key may stand that its code takes."""
        own = self.aliases.get(key)
        names = (key,) if own is None else (key, own)
        return tuple(each for each in names if each not in self.foreign) if self.foreign else names

    def left(self) -> tuple[str, ...]:
        """Return the keys with a value that nobody asked for, in order."""
        return tuple(key for key, value in self.values.items() if value is not None and key not in self.read_keys)

    def refusal(self, key: str, problem: str) -> ShapeUnreadable:
        """Return the exception for a key: "<model>: <key> <problem>"."""
        own = self.aliases.get(key)
        full = f"{self.path}{own if own in self.values and key not in self.values else key}"
        message = Sentence("{model}: {key} {problem}", model=self.name or "config.json", key=full, problem=problem)
        return ShapeUnreadable(full, message)

    def shown(self, value: object) -> str:
        """Return a value as a message shows it, cut where it is long or deep."""
        try:
            return _REPR.repr(value)
        except ValueError:  # Python prints no number of thousands of digits
            return "a number too long to show"

    def has(self, key: str) -> bool:
        """Return True if the key has a value that is not null."""
        return self.value(key) is not None

    def first(self, *keys: str) -> str:
        """Return the first of the keys, which mean the same, that has a value, or the first of all."""
        said = next((key for key in keys if self.is_said(key)), None)
        return said or next((key for key in keys if self.has(key)), keys[0])

    def count(self, *keys: str, low: int = 1, limit: int = SIZE_LIMIT) -> int:
        """Return a whole number from `low` to `limit` under one of the keys. Raises: ShapeUnreadable."""
        number = self.optional_count(*keys, low=low, limit=limit)
        if number is None:
            problem = Sentence("is missing.") if keys[0] not in self.values else Sentence("is null.")
            raise self.refusal(
                keys[0],
                Sentence(
                    "{problem} It must be a whole number from {low} to {limit}.", problem=problem, low=low, limit=limit
                ),
            )
        return number

    def optional_count(self, *keys: str, low: int = 1, limit: int = SIZE_LIMIT) -> int | None:
        """Return a whole number, or None where all the keys are absent or null. Raises: ShapeUnreadable."""
        key = self.first(*keys)
        value = self.value(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= limit:
            problem = Sentence(
                "is {value}. It must be a whole number from {low} to {limit}.",
                value=self.shown(value),
                low=low,
                limit=limit,
            )
            raise self.refusal(key, problem)
        return value

    def factor(self, key: str) -> float:
        """Return a number above 0, up to 16, which no family's code goes beyond. Raises: ShapeUnreadable."""
        value = self.value(key)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 16:
            raise self.refusal(key, Sentence("is {value}. It must be a number above 0.", value=self.shown(value)))
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        """Return true or false; `default` where the key is absent, false where it is null. Raises: ShapeUnreadable."""
        value = self.value(key)
        if value is None:
            return default and key not in self.values
        if not isinstance(value, bool):
            raise self.refusal(key, Sentence("is {value}. It must be true or false.", value=self.shown(value)))
        return value

    def text(self, key: str, default: str | None = None) -> str:
        """Return a text that is not empty. Raises: ShapeUnreadable."""
        value = self.value(key)
        if value is None and default is not None:
            return default
        if not isinstance(value, str) or not value:
            problem = Sentence("is missing.") if value is None else Sentence("is {value}.", value=self.shown(value))
            raise self.refusal(key, Sentence("{problem} It must be a text.", problem=problem))
        return value

    def table(self, key: str) -> "ConfigValues | None":
        """Return the table under a key, None where it is absent or null. Raises: ShapeUnreadable."""
        value = self.value(key)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise self.refusal(key, Sentence("is {value}. It must be a table of values.", value=self.shown(value)))
        return ConfigValues(values=value, name=self.name, path=f"{self.path}{key}.")

    def items(self, key: str, of: type[Any]) -> tuple[Any, ...] | None:
        """Return a list whose items are all of one type, None where it is absent or null. Raises: ShapeUnreadable."""
        value = self.value(key)
        if value is None:
            return None
        if not isinstance(value, list | tuple):
            raise self.refusal(key, Sentence("is {value}. It must be a list.", value=self.shown(value)))
        for item in value:
            if not isinstance(item, of) or isinstance(item, bool):
                kinds = {int: Sentence("whole numbers"), str: Sentence("texts")}
                raise self.refusal(
                    key,
                    Sentence("has the item {item}. Its items must be {kinds}.", item=self.shown(item), kinds=kinds[of]),
                )
        return tuple(value)

    def table_list(self, key: str) -> tuple["ConfigValues", ...]:
        """Return the tables of a list. Raises: ShapeUnreadable."""
        value = self.value(key)
        if not isinstance(value, list | tuple) or not all(isinstance(each, Mapping) for each in value):
            raise self.refusal(key, Sentence("is {value}. It must be a list of tables.", value=self.shown(value)))
        return tuple(
            ConfigValues(values=each, name=self.name, path=f"{self.path}{key}.{index}.")
            for index, each in enumerate(value)
        )

    def tables(self) -> Iterator["ConfigValues"]:
        """Return the tables inside this one, in order."""
        for key, value in self.values.items():
            if isinstance(value, Mapping):
                yield ConfigValues(values=value, name=self.name, path=f"{self.path}{key}.")
