"""Data besides a run's first source, each by its name with a few keys: held-out sets (`data.eval_sets`), and what is
mixed into training (`data.mixture`)."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

from pydantic_core import PydanticCustomError

from jobs.catalog.value import is_storable

MAX_PARTS = 16
KINDS = ("bundled", "path", "hub")
COLUMNS = (
    "prompt_column",
    "answer_column",
    "response_column",
    "messages_column",
    "chosen_column",
    "rejected_column",
    "label_column",
)
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")
_ENDINGS = (".jsonl", ".json", ".csv", ".parquet")


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One key of a part: a text, or a number within its range."""

    low: float | None = None
    high: float = 0.0
    is_whole: bool = True

    def allows(self, value: object) -> bool:
        """Return True for a value that the key takes."""
        if self.low is None:
            return isinstance(value, str) and is_storable(value)
        if not isinstance(value, int | float) or isinstance(value, bool):
            return False
        return self.low <= value <= self.high and not (self.is_whole and value != int(value))

    @property
    def allowed(self) -> str:
        """Return what it takes, for the end of a sentence."""
        kind = "a whole number" if self.is_whole else "a number"
        return "a text" if self.low is None else f"{kind} from {self.low:g} to {self.high:g}"


_SOURCE: Mapping[str, Key] = {"kind": Key(), "id": Key(), "split": Key(), **{name: Key() for name in COLUMNS}}
EVAL_KEYS: Mapping[str, Key] = MappingProxyType(
    {
        **_SOURCE,
        "every_steps": Key(low=0, high=1_000_000),
        "num_prompts": Key(low=1, high=1_000_000),
        "samples_per_prompt": Key(low=1, high=1024),
        "temperature": Key(low=0.0, high=5.0, is_whole=False),
    }
)


MIXTURE_KEYS: Mapping[str, Key] = MappingProxyType({**_SOURCE, "weight": Key(low=0.000001, high=1e6, is_whole=False)})


def check_parts(raw: object, *, keys: Mapping[str, Key]) -> dict[str, dict[str, Any]]:
    """Return the parts by name as plain JSON, a copy.

    Raises: PydanticCustomError `part_refused`, with the `place` in question, its `value` and what is `allowed`.
    """
    if not isinstance(raw, Mapping):
        raise _refusal("The field", raw, 'a JSON object such as {"hard": {"id": "/data/hard.jsonl"}}')
    if len(raw) > MAX_PARTS:
        raise _refusal("The number of sets", len(raw), f"at most {MAX_PARTS}")
    parts: dict[str, dict[str, Any]] = {}
    for name, part in raw.items():
        if not (isinstance(name, str) and _NAME.fullmatch(name)):
            raise _refusal("A name", name, "up to 40 of a-z, 0-9, _ and -")
        if not isinstance(part, Mapping):
            raise _refusal(name, part, 'a JSON object such as {"id": "/data/hard.jsonl"}')
        parts[name] = _check_part(name, part, keys)
    return parts


def _check_part(name: str, part: Mapping[Any, Any], keys: Mapping[str, Key]) -> dict[str, Any]:
    for key, value in part.items():
        if key not in keys:
            raise _refusal(f"A key of {name}", key, f"one of {', '.join(keys)}")
        if not keys[key].allows(value):
            raise _refusal(f"{name}.{key}", value, keys[key].allowed)
    kind, source = part.get("kind", "path"), part.get("id", "")
    if kind not in KINDS:
        raise _refusal(f"{name}.kind", kind, f"one of {', '.join(KINDS)}")
    if not source.strip():
        raise _refusal(f"{name}.id", source, "a path, a hub id or the name of bundled data")
    if kind == "path" and not source.lower().endswith(_ENDINGS):
        raise _refusal(f"{name}.id", source, f"a path that ends in {', '.join(_ENDINGS)}")
    return dict(part)


def _refusal(place: str, value: object, allowed: str) -> PydanticCustomError:
    context = {"place": place, "value": repr(value)[:200], "allowed": allowed}
    return PydanticCustomError("part_refused", "not a part of the data", context)


check_eval_sets = partial(check_parts, keys=EVAL_KEYS)
check_mixture = partial(check_parts, keys=MIXTURE_KEYS)
