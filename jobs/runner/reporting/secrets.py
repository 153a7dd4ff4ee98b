"""No secret leaves the run's machine in what is shipped: known ones by their value, others by what they look like."""

import json
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

from profiling.redaction import MIN_BYTES, hide, hider

HELD_BACK = "(held back: which secrets to hide here is not known any more; the log file has it)"
_OURS = frozenset({"kind", "role", "stream", "state", "side", "artifact", "path"})
"""Fields whose texts are words of ours, by which the console goes."""
_TEXTS = re.compile(rb'"kind":\s*"(?:log|note|state)"')  # words of programs; the rest is numbers, names and data


class SecretHiding:
    """Takes secrets out of lines and events, each time the same way: a batch that is made again stays as it was.

    None for `secrets`: there are some, and nobody knows them any more, so that no word of a program is told.
    """

    def __init__(self, secrets: Collection[bytes] | None) -> None:
        self._known = hider(secrets) if secrets is not None else _held_back

    def line(self, text: str) -> str:
        """Return a log line without secrets."""
        return hide(self._known(text))

    def event(self, data: bytes) -> bytes:
        """Return an encoded event without secrets. In prompts and responses only known ones are looked for."""
        take_out = self.line if _TEXTS.search(data, 0, 4096) else self._known
        text = data.decode("utf-8", "replace")
        if self._known is not _held_back and take_out(text) == text:
            return data
        return json.dumps(_mapped(json.loads(text), take_out), ensure_ascii=False, separators=(",", ":")).encode()


NOTHING_HIDDEN = SecretHiding(())


def _held_back(text: str) -> str:
    return HELD_BACK if len(text) >= MIN_BYTES else text


def _mapped(value: Any, take_out: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return take_out(value)
    if isinstance(value, Mapping):
        return {key: inner if key in _OURS else _mapped(inner, take_out) for key, inner in value.items()}
    return [_mapped(inner, take_out) for inner in value] if isinstance(value, list) else value
