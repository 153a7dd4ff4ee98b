"""What people read of a request that does not have the fields its operation takes: a sentence for each that is wrong.

sentence_of_error({"type": "greater_than_equal", "loc": ("devices",), "input": -4, "ctx": {"ge": 1}, ...})
-> "-4 is not allowed. Use a number of at least 1."
"""

from collections.abc import Mapping
from typing import Any

_MAX_SHOWN = 40
_SECRET = ("password", "secret", "token", "code", "variables", "values")
_ALLOWED = {
    "greater_than": "a number above {gt}",
    "greater_than_equal": "a number of at least {ge}",
    "less_than": "a number below {lt}",
    "less_than_equal": "a number of at most {le}",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_parsing_size": "a smaller whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "string_type": "text",
    "string_too_short": "at least {min_length} characters",
    "string_too_long": "at most {max_length} characters",
    "too_short": "at least {min_length}",
    "too_long": "at most {max_length}",
    "literal_error": "{expected}",
    "list_type": "a list",
    "dict_type": "a JSON object",
    "model_type": "a JSON object",
    "model_attributes_type": "a JSON object",
}
"""Type of pydantic's error -> what is allowed, filled with the error's context."""


def sentence_of_error(error: Mapping[str, Any]) -> str:
    """Return the sentence for one of pydantic's errors: the value that was given, and what is allowed. The caller names
    the field. Values that may be secret, or are long, are not repeated."""
    kind, place = error["type"], [str(part) for part in error["loc"]]
    if kind == "missing":
        return "This field is missing, and has no default."
    if kind == "extra_forbidden":
        return f"There is no field {place[-1][:_MAX_SHOWN]!r} here."
    if kind not in _ALLOWED:
        return str(error["msg"]).removeprefix("Value error, ")
    allowed = _ALLOWED[kind].format(**{name: _plain(value) for name, value in error.get("ctx", {}).items()})
    if kind in ("too_short", "too_long"):
        number = error["ctx"]["actual_length"]  # None of what is too long to be counted
        size = {0: "It is empty", 1: "It has 1 entry", None: "It has too many entries"}
        return f"{size.get(number, f'It has {number} entries')}. Give {allowed}."
    return f"{_shown(error.get('input'), place)} is not allowed. Use {allowed}."


def _plain(value: object) -> object:
    """Return a number as people write it: no fraction where it is whole."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return f"{value:,}" if isinstance(value, int) else value


def _shown(value: object, place: list[str]) -> str:
    """Return a value as JSON has it, where it is short and no secret."""
    if any(word in part.lower() for part in place for word in _SECRET):
        return "The value"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int | float | str) and len(text := repr(value)) <= _MAX_SHOWN:
        return text
    if isinstance(value, str):
        return "This text"
    return "A list" if isinstance(value, list) else "A JSON object" if isinstance(value, dict) else "The value"
