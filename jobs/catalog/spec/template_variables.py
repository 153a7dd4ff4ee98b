"""Which variables of a chat template a spec may set: names that a template can read, and values that JSON can keep."""

import json
from collections.abc import Mapping
from typing import Any

from pydantic_core import PydanticCustomError

from jobs.catalog.value import is_storable

MAX_BYTES = 64 * 1024
MAX_DEPTH = 16
TAKEN = (
    "messages",
    "add_generation_prompt",
    "continue_final_message",
    "chat_template",
    "conversation",
    "conversations",
    "tokenize",
    "tokenizer_kwargs",
    "padding",
    "truncation",
    "max_length",
    "return_tensors",
    "return_dict",
    "return_assistant_tokens_mask",
    "self",
)
"""Arguments of Transformers' `apply_chat_template`, which no template can get as variables of that name."""
LISTS = ("tools", "documents")
"""Variables whose values templates go through one object after the other."""
_MAX_NUMBER = 2**53
"""Above it JavaScript rounds, and PostgreSQL gives numbers back as integers."""


def check_template_variables(raw: object) -> dict[str, Any]:
    """Return the variables as plain JSON, a copy. Raises: PydanticCustomError, with the `name` it is about."""
    if not isinstance(raw, Mapping):
        raise PydanticCustomError("not_variables", "not a JSON object")
    for name, value in raw.items():
        if not _is_name(name):
            raise PydanticCustomError("not_a_variable", "not a variable", {"name": repr(name)})
        if not _is_json(value, MAX_DEPTH):
            raise PydanticCustomError("not_json", "not JSON", {"name": name})
        if name in LISTS and not (isinstance(value, list) and all(isinstance(item, Mapping) for item in value)):
            raise PydanticCustomError("not_objects", "not a list of objects", {"name": name, "value": repr(value)})
    text = json.dumps(raw, ensure_ascii=False)
    if len(text.encode()) > MAX_BYTES:
        raise PydanticCustomError("variables_too_large", "too large")
    plain: dict[str, Any] = json.loads(text)
    return plain


def _is_name(name: object) -> bool:
    return isinstance(name, str) and name.isascii() and name.isidentifier() and name not in TAKEN


def _is_json(value: object, depth: int) -> bool:
    match value:
        case None | bool():
            return True
        case int() | float():
            return abs(value) <= _MAX_NUMBER  # false for NaN, too
        case str():
            return is_storable(value)
        case list():
            return depth > 0 and all(_is_json(item, depth - 1) for item in value)
        case dict():
            names = all(isinstance(key, str) and is_storable(key) for key in value)
            return depth > 0 and names and all(_is_json(item, depth - 1) for item in value.values())
    return False
