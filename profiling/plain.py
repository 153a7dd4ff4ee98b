"""Frozen dataclasses as JSON and back, for answers that are kept in files: no pickle, which could be a program."""

import json
from collections.abc import Mapping
from dataclasses import asdict, fields, is_dataclass
from functools import cache
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")


def written(value: Any) -> str:
    """Return a dataclass as JSON; NaN stays NaN, numbers of numpy become plain ones. Raises: TypeError for others."""
    return json.dumps(asdict(value), default=lambda odd: odd.item(), separators=(",", ":"))


def read(shape: type[T], text: str) -> T:
    """Return what `written` made of an object of this dataclass. Raises: ValueError if it is none."""
    try:
        restored: T = _restored(shape, json.loads(text))
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"This is no {shape.__name__}: {error!r}.") from error
    return restored


def _restored(kind: Any, value: Any) -> Any:
    if isinstance(kind, type) and is_dataclass(kind):
        return kind(**{name: _restored(hint, value[name]) for name, hint in _hints(kind).items()})
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return None if value is None else _restored(next(one for one in inner if one is not type(None)), value)
    if origin is tuple:
        each = [inner[0]] * len(value) if inner[-1] is Ellipsis else inner
        return tuple(_restored(hint, one) for hint, one in zip(each, value, strict=True))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {key: _restored(inner[1], one) for key, one in value.items()}
    return value


@cache
def _hints(kind: Any) -> dict[str, object]:
    hints = get_type_hints(kind)
    return {each.name: hints[each.name] for each in fields(kind) if each.init}
