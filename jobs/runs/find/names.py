"""What the names of a filter line mean, and what is wrong with those that mean nothing."""

import difflib
import math
import re
from collections.abc import Iterable
from datetime import UTC, datetime

from django.utils.translation import gettext as _

from jobs.catalog.knob import knobs
from jobs.catalog.metric import current_name, metrics
from jobs.models import STATES
from jobs.runs.find.fields import MOMENTS, NUMBERS, PARTS, WHOLE, is_metric
from jobs.runs.find.terms import AnyOf, HasTag, HasText, IsCompared, Kind, Symbol, Term

KEYS = (*WHOLE, *PARTS, "id", "tag")
"""What stands before a colon."""
SHORT = {"lr": "optimizer.learning_rate", "kl": "algorithm.kl_coefficient", "n": "rollout.samples_per_prompt"}
"""Names of knobs as people say them; any knob also goes by its last part where only one has it."""
_NEAR = 0.7
"""How much of two names is alike before one is suggested for the other: half of the letters any two have."""
_EXAMPLES = {"state": "failed", "tag": "baseline", "algorithm": "grpo", "by": "me", "sweep": "s-1a2b3c4d"}
_UNITS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
_VALUE = re.compile(r'(?:"[^"]*"|[^,"])+')


class FilterInvalid(ValueError):
    """The filter asks for something that does not exist; `field` is its parameter.

    What is wrong stands between characters `start` and `end` of the line; both 0 where that is not one piece.
    """

    def __init__(self, field: str, message: str, *, start: int = 0, end: int = 0) -> None:
        self.field = field
        self.start = start
        self.end = end
        super().__init__(message)


def keyed(key: str, raw: str, *, username: str) -> Term:
    """Return what `key:values` says. Raises: FilterInvalid."""
    values = [part.replace('"', "") for part in _VALUE.findall(raw)]
    if key not in KEYS:
        if key in knobs() or is_metric(key) or _by_last_part(key):
            return _any([compared(key, "=", value) for value in values] or [compared(key, "=", "")])
        near = difflib.get_close_matches(key, KEYS, n=1)
        hint = near[0] if near else ", ".join(KEYS)
        message = _("There is no filter “%(key)s:”. Use %(hint)s, or compare a knob or metric, as in reward/mean>0.8.")
        raise FilterInvalid("q", message % {"key": key, "hint": hint})
    if not values:
        message = _("“%(key)s:” stands alone. Write what to look for after it, as in %(key)s:%(example)s.")
        raise FilterInvalid("q", message % {"key": key, "example": _EXAMPLES.get(key, "math")})
    if key == "tag":
        return _any([HasTag(value) for value in values])
    if key == "state":
        check_states(values)
    if key == "by":
        values = [username if value == "me" else value for value in values]
    lower = tuple(value.lower() for value in values)
    return HasText(WHOLE.get(key, key), lower, is_part=key in PARTS)


def check_states(states: Iterable[str]) -> None:
    """Raises: FilterInvalid naming the first that is no state, with the nearest that is."""
    for state in states:
        if state.lower() not in STATES:
            raise FilterInvalid("state", unknown(_("state"), state, STATES, allowed=", ".join(STATES)))


def compared(name: str, symbol: str, raw: str) -> IsCompared:
    """Return what `name symbol value` says. Raises: FilterInvalid."""
    kind, key = _meant(name)
    sign: Symbol = "=" if symbol == "==" else symbol  # type: ignore[assignment]
    text = raw.replace('"', "").strip()
    if not text:
        message = _("A value is missing after “%(name)s%(symbol)s”. Write a number or a text.")
        raise FilterInvalid("q", message % {"name": name, "symbol": symbol})
    value = _value_of(key if kind == "field" else "", text)
    if isinstance(value, str) and (sign not in ("=", "!=") or kind == "field"):
        message = _("%(value)r is not a number, so %(name)s cannot be compared with %(symbol)s. Use = or a number.")
        if kind == "field":
            message = _("%(value)r is nothing that %(name)s can be compared with. Use a number, 90min or 2026-11-20.")
        raise FilterInvalid("q", message % {"value": raw, "name": name, "symbol": symbol})
    return IsCompared(kind, key, sign, value)


def knob_meant(name: str) -> str:
    """Return the id of the knob that people mean by `name`, "" for none or several."""
    if name in knobs():
        return name
    matches = _by_last_part(name)
    return SHORT.get(name) or (matches[0] if len(matches) == 1 else "")


def unknown(what: str, name: str, choices: Iterable[str], *, allowed: str) -> str:
    """Return the sentence that there is no `what` of this name, with the nearest of the choices, or what is allowed."""
    near = difflib.get_close_matches(name, list(choices), n=1, cutoff=_NEAR)
    words = {"what": what, "given": name, "near": near[0] if near else "", "allowed": allowed}
    if near:
        return _("There is no %(what)s %(given)r. Did you mean %(near)s?") % words
    return _("There is no %(what)s %(given)r. Use %(allowed)s.") % words


def _any(terms: list[IsCompared] | list[HasTag]) -> Term:
    return terms[0] if len(terms) == 1 else AnyOf(tuple(terms))


def _meant(name: str) -> tuple[Kind, str]:
    if is_metric(name):
        return "metric", current_name(name)
    if name in NUMBERS:
        return "field", name
    if knob_id := knob_meant(name):
        return "knob", knob_id
    matches = _by_last_part(name)
    if matches:
        message = _("“%(name)s” can be %(ids)s. Write one of them in full.")
        raise FilterInvalid("q", message % {"name": name, "ids": ", ".join(matches)})
    lasts = [knob_id.partition(".")[2] for knob_id in knobs()]
    near = difflib.get_close_matches(name, lasts, n=1, cutoff=_NEAR)
    if "." not in name and near:
        message = _("There is no knob “%(name)s”. Did you mean %(near)s?")
        raise FilterInvalid("q", message % {"name": name, "near": near[0]})
    allowed = _("%(names)s, the id of a knob, or a metric") % {"names": ", ".join(NUMBERS)}
    raise FilterInvalid("q", unknown(_("knob or metric"), name, [*NUMBERS, *knobs(), *metrics()], allowed=allowed))


def _by_last_part(name: str) -> list[str]:
    return [knob_id for knob_id in knobs() if knob_id.partition(".")[2] == name]


def _value_of(field: str, text: str) -> float | str:
    """Return the number that a text says: of durations with a unit, of moments a day or an ISO time; else the text."""
    try:
        number = float(text)
    except ValueError:
        return _moment(text) if field in MOMENTS else _duration(text) if field == "duration" else text.lower()
    if not math.isfinite(number):
        return text.lower()
    return number


def _duration(text: str) -> float | str:
    match = re.fullmatch(r"([\d.]+)\s*(s|min|m|h|d)", text)
    try:
        return float(match[1]) * _UNITS[match[2]] if match else text
    except ValueError:
        return text


def _moment(text: str) -> float | str:
    try:
        at = datetime.fromisoformat(text)
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return text
