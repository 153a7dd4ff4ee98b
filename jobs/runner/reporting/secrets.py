"""No secret leaves the run's machine in what is shipped: known ones by their value, others by what they look like."""

import json
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

from profiling.redaction import hide, hider

_TEXTS = re.compile(rb'"kind":\s*"(?:log|note|state)"')  # words of programs; the rest is numbers, names and data


class SecretHiding:
    """Takes secrets out of lines and events, each time the same way: a batch that is made again stays as it was."""

    def __init__(self, secrets: Collection[bytes]) -> None:
        self._known = hider(secrets)

    def line(self, text: str) -> str:
        """Return a log line without secrets."""
        return hide(self._known(text))

    def event(self, data: bytes) -> bytes:
        """Return an encoded event without secrets. In prompts and responses only known ones are looked for."""
        take_out = self.line if _TEXTS.search(data, 0, 4096) else self._known
        text = data.decode("utf-8", "replace")
        if take_out(text) == text:
            return data
        return json.dumps(_mapped(json.loads(text), take_out), ensure_ascii=False, separators=(",", ":")).encode()


NOTHING_HIDDEN = SecretHiding(())


def _mapped(value: Any, take_out: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return take_out(value)
    if isinstance(value, Mapping):
        return {key: _mapped(inner, take_out) for key, inner in value.items()}
    return [_mapped(inner, take_out) for inner in value] if isinstance(value, list) else value
