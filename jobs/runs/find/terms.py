"""What a filter says, as a tree: words, fields, tags and comparisons, joined by and, or, not."""

from dataclasses import dataclass
from typing import Literal

Kind = Literal["field", "knob", "metric", "tag"]
Symbol = Literal[">", "<", ">=", "<=", "=", "!="]


@dataclass(frozen=True, slots=True)
class HasWord:
    """The word, in lower case, stands in the run's id, name, model, author, a tag or the note."""

    text: str


@dataclass(frozen=True, slots=True)
class HasTag:
    """The run has this very tag."""

    tag: str


@dataclass(frozen=True, slots=True)
class HasText:
    """The field is one of these values, in lower case; with `is_part`, one of them stands in it. `id` begins so."""

    field: str
    values: tuple[str, ...]
    is_part: bool = False


@dataclass(frozen=True, slots=True)
class IsCompared:
    """A value held against a number or, by = and != alone, a text in lower case. What has no value does not pass.

    Numbers are equal within a relative 1e-9.
    """

    kind: Kind
    name: str
    symbol: Symbol
    value: float | str


@dataclass(frozen=True, slots=True)
class AllOf:
    """Every part holds; without parts, any run passes."""

    parts: tuple["Term", ...] = ()


@dataclass(frozen=True, slots=True)
class AnyOf:
    """At least one part holds."""

    parts: tuple["Term", ...]


@dataclass(frozen=True, slots=True)
class NotSo:
    """The part does not hold; so a run without a value of what it compares passes."""

    part: "Term"


Term = HasWord | HasTag | HasText | IsCompared | AllOf | AnyOf | NotSo


def all_of(*terms: Term) -> Term:
    """Return the conjunction, flat."""
    parts: list[Term] = []
    for term in terms:
        parts.extend(term.parts if isinstance(term, AllOf) else (term,))
    return parts[0] if len(parts) == 1 else AllOf(tuple(parts))


ANY_RUN = AllOf()
