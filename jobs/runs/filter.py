"""What to list of a project's runs: words, states, tags, and comparisons like `optimizer.learning_rate>1e-4`."""

import difflib
import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext as _

from jobs.catalog.algorithm import algorithms, expand
from jobs.catalog.knob import knobs
from jobs.catalog.metric import current_name, metrics
from jobs.models import STATES

_COMPARISON = re.compile(r"^(?P<name>[A-Za-z][\w./@-]*?)(?P<op>>=|<=|!=|==|=|>|<)(?P<value>.+)$")
_OPERATORS: Mapping[str, Callable[[Any, Any], bool]] = {
    ">": operator.gt,
    "<": operator.lt,
    ">=": operator.ge,
    "<=": operator.le,
    "=": operator.eq,
    "==": operator.eq,
    "!=": operator.ne,
}
ROW_SORTS = (
    *("created", "name", "state", "step", "started", "ended", "duration"),
    *("value", "speed", "algorithm", "model", "data", "author"),
)
"""What runs can be sorted by besides any knob id and any metric name."""
BY_ALGORITHM: Mapping[str, Mapping[str, str]] = {
    "value": {name: info.metric for name, info in algorithms().items()},
    "speed": dict.fromkeys(expand(["rl"]), "throughput/rollout_tokens_per_second")
    | dict.fromkeys(expand(["answers"]), "throughput/update_tokens_per_second"),
}
"""Columns that show another metric for each algorithm: the main metric and the tokens a second."""


def main_metric(algorithm: str) -> str:
    """Return the one metric that runs of this algorithm are judged by; "" for an algorithm without one."""
    return BY_ALGORITHM["value"].get(algorithm, "")


class FilterInvalid(ValueError):
    """The filter asks for something that does not exist; `field` is its parameter."""

    def __init__(self, field: str, message: str) -> None:
        self.field = field
        super().__init__(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueFilter:
    """A knob's or last metric's value held against a number or text."""

    name: str
    symbol: str
    value: float | str

    def holds(self, stored: object) -> bool:
        """Return True if `stored` passes; what is not there, or not comparable, does not."""
        if isinstance(stored, bool):
            stored = str(stored).lower()
        if isinstance(self.value, float):
            if not isinstance(stored, (int, float)) or math.isnan(stored):
                return False
            if self.symbol in ("=", "==", "!="):
                is_close = math.isclose(stored, self.value, rel_tol=1e-9)
                return is_close is (self.symbol != "!=")
            return _OPERATORS[self.symbol](float(stored), self.value)
        if not isinstance(stored, str) or self.symbol not in ("=", "==", "!="):
            return False
        return _OPERATORS[self.symbol](stored.lower(), self.value.lower())


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFilter:
    """Which runs to list; all parts must hold, of states, algorithms, authors and studies any one, none meaning all."""

    words: tuple[str, ...] = ()
    comparisons: tuple[ValueFilter, ...] = ()
    states: tuple[str, ...] = ()
    algorithms: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    without_tags: tuple[str, ...] = ()
    authors: tuple[str, ...] = ()
    studies: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()  # these alone, archived or not
    is_archived: bool = False


def parse_filter(
    *,
    q: str = "",
    states: Iterable[str] = (),
    algorithms: Iterable[str] = (),
    tags: Iterable[str] = (),
    without_tags: Iterable[str] = (),
    authors: Iterable[str] = (),
    studies: Iterable[str] = (),
    is_archived: bool = False,
) -> RunFilter:
    """Return the filter of what people typed; `q` mixes words and comparisons.

    Raises: FilterInvalid naming an unknown state, knob or metric, with the nearest known one.
    """
    words: list[str] = []
    comparisons: list[ValueFilter] = []
    for part in q.split():
        match = _COMPARISON.match(part)
        if match:
            comparisons.append(_comparison(match["name"], match["op"], match["value"]))
        else:
            words.append(part.lower())
    for state in states:
        if state not in STATES:
            raise FilterInvalid("state", _unknown(_("state"), state, STATES))
    return RunFilter(
        words=tuple(words),
        comparisons=tuple(comparisons),
        states=tuple(states),
        algorithms=tuple(algorithms),
        tags=tuple(tags),
        without_tags=tuple(without_tags),
        authors=tuple(authors),
        studies=tuple(studies),
        is_archived=is_archived,
    )


def check_sort(sort: str) -> str:
    """Return the sort key without its leading minus. Raises: FilterInvalid if there is nothing of that name."""
    name = current_name(sort.removeprefix("-"))
    if name in ROW_SORTS or is_metric(name) or name in knobs():
        return name
    raise FilterInvalid("sort", _unknown(_("column"), name, [*ROW_SORTS, *knobs(), *metrics()]))


def is_metric(name: str) -> bool:
    """Return True if `name` is written like a metric; trainers may report more than the dictionary knows."""
    return "/" in name


def _comparison(name: str, symbol: str, raw: str) -> ValueFilter:
    if name not in knobs() and not is_metric(name):
        raise FilterInvalid("q", _unknown(_("knob or metric"), name, [*knobs(), *metrics()]))
    try:
        value: float | str = float(raw)
    except ValueError:
        value = raw
    if isinstance(value, str) and symbol not in ("=", "==", "!="):
        text = _("%(value)r is not a number, so %(name)s cannot be compared with %(symbol)s. Use = or a number.")
        raise FilterInvalid("q", text % {"value": raw, "name": name, "symbol": symbol})
    return ValueFilter(name=current_name(name), symbol=symbol, value=value)


def _unknown(what: str, name: str, choices: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(choices), n=1, cutoff=0.5)
    hint = _("Did you mean %(near)s?") % {"near": near[0]} if near else ""
    refusal = _("There is no %(what)s %(given)r.") % {"what": what, "given": name}
    return f"{refusal} {hint}".strip()
