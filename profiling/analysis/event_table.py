"""A table of the events of a window, filtered by conditions in a small grammar, sorted, a page at a time.

    name ~ gemm and length > 1 ms and lane ~ "stream 7" and category = kernel

Conditions are joined by `and`. Texts compare by `=`, `!=`, `~` (contains) and `!~`, in any case; numbers by `=`, `!=`,
`<`, `<=`, `>`, `>=`, with a unit. A word by itself is looked for in names. What people write never becomes SQL: fields
and operators come from the tables here, values are parameters.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from profiling.trace.category import Category
from profiling.trace.lanes import of_stream
from profiling.trace.store import Lane, Store

Field = Literal["name", "category", "lane", "length", "bytes"]
Sort = Literal["begin", "length", "name", "category", "lane", "bytes"]

_TEXT_OPERATORS = ("=", "!=", "~", "!~")
_NUMBER_OPERATORS = ("=", "!=", "<", "<=", ">", ">=")
_FIELDS: dict[Field, tuple[str, ...]] = {
    "name": _TEXT_OPERATORS,
    "category": ("=", "!="),
    "lane": _TEXT_OPERATORS,
    "length": _NUMBER_OPERATORS,
    "bytes": _NUMBER_OPERATORS,
}
_UNITS: dict[Field, dict[str, float]] = {
    "length": {"ns": 1, "us": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9},
    "bytes": {
        "": 1, "b": 1, "kb": 1e3, "mb": 1e6, "gb": 1e9, "kib": 2**10, "mib": 2**20, "gib": 2**30,
    },
}  # fmt: skip
_SORTS: dict[Sort, str] = {
    "begin": "e.ts", "length": "e.dur", "name": "n.text", "category": "e.cat", "lane": "e.lane", "bytes": "e.bytes",
}  # fmt: skip
_TOKEN = re.compile(r"\s*(?:\"((?:[^\"\\]|\\.)*)\"|(!=|!~|<=|>=|[=~<>])|([^\s\"=~<>!]+|!))")
_NUMBER = re.compile(r"^(\d+(?:\.\d+)?(?:e[+-]?\d+)?)([^\d.]*)$", re.I)
_MOST_CONDITIONS = 20


class WrongCondition(ValueError):
    """A condition that cannot be read; the sentence says which part, and what may stand there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventCondition:
    """`value` is a text in small letters, or a number in ns or bytes."""

    field: Field
    operator: str
    value: str | float


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One event. `begin` in Unix ns, `length` in ns."""

    id: int
    lane: int
    depth: int
    begin: int
    length: int
    name: str
    category: str
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EventPage:
    """Some rows of all that fit."""

    count: int
    rows: tuple[Row, ...]


def parsed(text: str) -> tuple[EventCondition, ...]:
    """Return the conditions of a text; () for an empty one. Raises: WrongCondition."""
    tokens = _tokens(text)
    conditions: list[EventCondition] = []
    while tokens:
        if conditions:
            word, is_quoted = tokens.pop(0)
            if is_quoted or word.lower() != "and":
                raise WrongCondition(f"{word!r} stands where `and` has to: conditions are joined by it.")
        conditions.append(_condition(tokens))
        if len(conditions) > _MOST_CONDITIONS:
            raise WrongCondition(f"There are more than {_MOST_CONDITIONS} conditions, which is the most.")
    return tuple(conditions)


def _tokens(text: str) -> list[tuple[str, bool]]:
    """Return words and operators, and which of them were quoted."""
    tokens: list[tuple[str, bool]] = []
    at = 0
    while text[at:].strip():
        match = _TOKEN.match(text, at)
        if match is None:
            raise WrongCondition(f"{text[at:].strip()[:40]!r} cannot be read: a quote is not closed.")
        quoted, operator, word = match.groups()
        is_quoted = quoted is not None
        tokens.append((re.sub(r"\\(.)", r"\1", quoted) if is_quoted else operator or word, is_quoted))
        at = match.end()
    return tokens


def _condition(tokens: list[tuple[str, bool]]) -> EventCondition:
    if not tokens:
        raise WrongCondition("A condition is missing after `and`.")
    word, is_quoted = tokens.pop(0)
    if not tokens or tokens[0][1] or tokens[0][0] not in {*_TEXT_OPERATORS, *_NUMBER_OPERATORS}:
        if not is_quoted and word in {*_TEXT_OPERATORS, *_NUMBER_OPERATORS}:
            raise WrongCondition(f"There is no field before {word!r}; there are {', '.join(_FIELDS)}.")
        return EventCondition(field="name", operator="~", value=word.lower())
    field = next((one for one in _FIELDS if one == word.lower() and not is_quoted), None)
    if field is None:
        raise WrongCondition(f"There is no field {word!r}; there are {', '.join(_FIELDS)}.")
    operator, _ = tokens.pop(0)
    if operator not in _FIELDS[field]:
        raise WrongCondition(f"{field}: it cannot be compared by {operator!r}; it can by {' '.join(_FIELDS[field])}.")
    if not tokens:
        raise WrongCondition(f"{field}: a value is missing after {operator!r}.")
    value, _ = tokens.pop(0)
    if field in _UNITS:
        return EventCondition(field=field, operator=operator, value=_number(field, value, tokens))
    if field == "category" and value.upper() not in Category.__members__:
        choices = ", ".join(sorted(one.lower() for one in Category.__members__))
        raise WrongCondition(f"category: {value!r} is none; there are {choices}.")
    return EventCondition(field=field, operator=operator, value=value.lower())


def _number(field: Field, text: str, tokens: list[tuple[str, bool]]) -> float:
    """Return a number in ns or bytes; its unit may stand apart from it."""
    match = _NUMBER.match(text)
    units = _UNITS[field]
    choices = ", ".join(unit for unit in units if unit)
    if match is None:
        raise WrongCondition(f"{field}: {text!r} is no number.")
    unit = match[2].lower()
    if not unit and tokens and tokens[0][0].lower() in units:
        unit = tokens.pop(0)[0].lower()
    if unit not in units:
        raise WrongCondition(f"{field}: {text!r} needs one of the units {choices}.")
    return float(match[1]) * units[unit]


def lane_name(lane: Lane) -> str:
    """Return what a lane is called where conditions ask for it."""
    if lane.kind == "stream" and not lane.title:
        return of_stream(f"GPU {lane.device}" if lane.device >= 0 else "GPU", lane.stream)
    return ", ".join(part for part in (lane.thread or (f"thread {lane.tid}" if lane.tid else ""), lane.title) if part)


def page(
    store: Store,
    conditions: Sequence[EventCondition],
    *,
    begin: int,
    end: int,
    sort: Sort = "length",
    is_descending: bool = True,
    limit: int = 200,
    offset: int = 0,
) -> EventPage:
    """Return the events that touch [begin, end) and fulfil all conditions, sorted, then by begin."""
    where, values = ["e.ts < ? AND (e.ts >= ? OR e.ts + e.dur > ?)"], [end, begin, begin]
    for condition in conditions:
        text, value = _where(store, condition)
        where.append(text)
        values.append(value)  # type: ignore[arg-type]  # numbers, texts and lists of numbers
    direction = "DESC" if is_descending else "ASC"
    of = f"FROM ev e JOIN names n ON n.id = e.name WHERE {' AND '.join(where)}"
    count = int(store.sql(f"SELECT count(*) AS n {of}", values)["n"][0])
    rows = store.sql(
        f"SELECT e.rowid AS id, e.lane, e.depth, e.ts, e.dur, n.text AS name, e.cat, e.bytes {of} "
        f"ORDER BY {_SORTS[sort]} {direction}, e.ts, e.rowid LIMIT ? OFFSET ?",
        [*values, limit, offset],
    )
    columns = (rows[key].tolist() for key in ("id", "lane", "depth", "ts", "dur", "name", "cat", "bytes"))
    return EventPage(
        count=count,
        rows=tuple(
            Row(
                id=number, lane=lane, depth=depth, begin=ts, length=dur, name=name,
                category=Category(cat).name.lower(), bytes=size,
            )
            for number, lane, depth, ts, dur, name, cat, size in zip(*columns, strict=True)
        ),
    )  # fmt: skip


def _where(store: Store, condition: EventCondition) -> tuple[str, object]:
    """Return a piece of SQL made of what stands here, and the one value that it takes."""
    field, operator, value = condition.field, condition.operator, condition.value
    is_not = operator.startswith("!")
    if field in _UNITS:
        column = {"length": "e.dur", "bytes": "e.bytes"}[field]
        return f"{column} {_NUMBER_OPERATORS[_NUMBER_OPERATORS.index(operator)]} ?", value
    if field == "category":
        return f"e.cat {'!=' if is_not else '='} ?", int(Category[str(value).upper()])
    if field == "lane":
        fits = (lambda name: name == value) if operator.endswith("=") else (lambda name: str(value) in name)
        chosen = [lane.id for lane in store.lanes if fits(lane_name(lane).lower()) is not is_not]
        return "list_contains(?, e.lane)", chosen
    test = "lower(n.text) = ?" if operator.endswith("=") else "contains(lower(n.text), ?)"
    return f"NOT {test}" if is_not else test, value
