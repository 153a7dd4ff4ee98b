"""What a knob can hold, and how it is written so that reading it back gives the same. Standard library only."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Scalar = float | int | str | bool
Value = Scalar | None
"""None is "not set": the trainer decides."""

_MOST_SHOWN = 200
_GROUPED = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+(\.\d*)?", re.ASCII)


def shown(value: object) -> str:
    """Return what somebody gave as a refusal repeats it: null, true and false as JSON has them, no more than a line."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    text = repr(value)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"


def value_text(value: Value | Mapping[str, object] | Sequence[Iterable[Any]]) -> str:
    """Return a value as people type it: 3e-4, 0.05, true, cosine, {"a": 1}; nothing for what is not set."""
    if value is None:
        return ""
    if isinstance(value, Mapping):
        return json.dumps(value, ensure_ascii=False) if value else ""
    if isinstance(value, (list, tuple)) and all(isinstance(each, str) for each in value):
        return " ".join(value)
    if isinstance(value, (list, tuple)):
        return json.dumps([dict(each) for each in value], ensure_ascii=False) if value else ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return _short_float(value) if isinstance(value, float) else str(value)


def plain_number(text: str) -> str:
    """Return the text of a number without blanks around it and commas between its thousands: 1,000 is 1000. Any other
    comma stays, for who reads it to refuse: 0,001 is a thousandth to some people, and must not become 1."""
    plain = text.strip()
    return plain.replace(",", "") if _GROUPED.fullmatch(plain) else plain


def _short_float(value: float) -> str:
    """Return 3e-4 for 0.0003 and 1.0 as 1: the shortest of the exact forms."""
    plain = repr(value).removesuffix(".0")
    mantissa, exponent = plain, "0"
    for digits in range(17):
        mantissa, _, exponent = f"{value:.{digits}e}".partition("e")
        if float(f"{mantissa}e{exponent}") == value:
            break
    scientific = f"{mantissa}e{int(exponent)}"
    return scientific if len(scientific) < len(plain) and abs(int(exponent)) > 3 else plain


def is_storable(text: str) -> bool:
    """Return True if PostgreSQL and SQLite can keep `text`: no NUL character, no half of a surrogate pair."""
    if "\0" in text:
        return False
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
