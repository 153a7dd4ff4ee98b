"""What a trainer dumps of its rollouts, as sample events: groups by prompt, the first of a step, texts that fit.

A dump has every response of a step, which may be thousands of long texts; as many are shipped as people look at.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from jobs.adapters.logs.gathering import NOBODY
from profiling.events import Event, encode_number

MAX_SAMPLES = 64
"""Of a step and kind: the first ones, in whole groups as far as they go."""

MAX_CHARS = 40_000
"""Of a text; of a longer one the beginning and the end stay."""

MAX_BYTES = 64 << 20
"""Of a dump of one step; a larger one is left where it is."""

_MAX_PARTS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpedResponse:
    """One response as a trainer dumped it. `parts` are numbers that make up its reward, or stand beside it.

    `reward` is None where the trainer does not say; `tokens` is 0 there. Responses of one `group` were drawn for one
    prompt; "" where the trainer does not say, and the prompt itself decides.
    """

    prompt: str
    completion: str
    expected: str = ""
    reward: float | None = None
    parts: Mapping[str, float] = field(default_factory=dict)
    tokens: int = 0
    group: str = ""


def sample_events(completions: Iterable[DumpedResponse], *, step: int, is_eval: bool, t: int) -> Iterator[Event]:
    """Yield the first responses of a step as events, numbered by group and place in it; `t` in Unix ns."""
    groups: dict[str, int] = {}
    members: dict[int, int] = {}
    for number, one in enumerate(completions):
        if number == MAX_SAMPLES:
            return
        group = groups.setdefault(one.group or one.prompt, len(groups))
        index = members.get(group, 0)
        members[group] = index + 1
        parts = {name[:100].replace(",", "_"): encode_number(value) for name, value in one.parts.items() if name}
        yield {
            "kind": "sample",
            "attempt": NOBODY,
            "step": step,
            "role": "driver",
            "rank": 0,
            "t": t,
            "group": group,
            "index": index,
            "prompt": fitting(one.prompt),
            "completion": fitting(one.completion),
            "expected": fitting(one.expected),
            "reward": None if one.reward is None else encode_number(one.reward),
            "rewards": dict(list(parts.items())[:_MAX_PARTS]),
            "tokens": one.tokens,
            "is_eval": is_eval,
        }


def fitting(text: str) -> str:
    """Return a text that an event may carry: without what no database takes, cut in its middle where it is long."""
    text = text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode("utf-8")
    if len(text) <= MAX_CHARS:
        return text
    half = MAX_CHARS // 2
    return f"{text[:half]}\n[{len(text) - 2 * half:,} characters are left out here]\n{text[-half:]}"


def number(value: object) -> float | None:
    """Return a value of a dump as a number, None where it is none; true and false are 1 and 0."""
    if not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:  # an integer of hundreds of digits
        return math.inf if value > 0 else -math.inf


def text_of(value: object) -> str:
    """Return a prompt or response as text.

    Of a conversation each message stands between the marks of ChatML, which the page shows as turns.
    """
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, Sequence) and value and all(isinstance(message, Mapping) for message in value):
        return "\n".join(_turn(message) for message in value)
    return str(value)


def _turn(message: Mapping[str, object]) -> str:
    content = message.get("content")
    if isinstance(content, Sequence) and not isinstance(content, str):  # parts: texts, and images without words
        content = "".join(str(part.get("text") or "") for part in content if isinstance(part, Mapping))
    calls = message.get("tool_calls")
    more = f"\n<tool_call>\n{calls}\n</tool_call>" if calls else ""
    return f"<|im_start|>{message.get('role') or ''}\n{content or ''}{more}<|im_end|>"


@dataclass(slots=True, kw_only=True)
class Dumps:
    """The files of a folder that grows, one for each step, each given once it is whole.

    A file is whole when a later look finds it as large as before: dumps are written in one go. What was given is not
    given again, also where the trainer writes over it.
    """

    folder: Path
    pattern: str
    _sizes: dict[str, int] = field(default_factory=dict, init=False)
    _yielded: set[str] = field(default_factory=set, init=False)

    def whole(self) -> Iterator[Path]:
        """Yield the files that have become whole since the last look, in the order of their names."""
        paths = [path for path in self.folder.glob(self.pattern) if path.name not in self._yielded]
        for path in sorted(paths, key=lambda path: (len(path.name), path.name)):
            try:
                size = path.stat().st_size
            except OSError:  # it is being replaced
                continue
            if size and self._sizes.get(path.name) == size:
                self._yielded.add(path.name)
                self._sizes.pop(path.name)
                if size <= MAX_BYTES:
                    yield path
            else:
                self._sizes[path.name] = size
