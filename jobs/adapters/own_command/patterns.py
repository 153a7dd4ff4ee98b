"""Patterns by which metrics are read off lines that a command prints: regular expressions with a name for each value.

    step (?P<step>\\d+).* loss (?P<loss>[\\d.e+-]+) reward (?P<reward__mean>[\\d.e+-]+)

`step` is the step; two underscores stand for the slash of a metric's name.
"""

import re
from re import _constants as kinds  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

from jobs.catalog.log_line import uncolored
from jobs.catalog.sentence import Sentence

MAX_PATTERNS = 20
MAX_LINE = 2000  # characters of a line that are looked at
_REPEATS = (kinds.MAX_REPEAT, kinds.MIN_REPEAT)


def read_patterns(text: str) -> tuple[re.Pattern[str], ...]:
    """Return the patterns of a text, one a line. Raises: ValueError with a sentence that names the line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if len(lines) > MAX_PATTERNS:
        raise ValueError(Sentence("There are {given} patterns; {most} are read.", given=len(lines), most=MAX_PATTERNS))
    return tuple(_pattern(line) for line in lines)


def values_in(line: str, patterns: tuple[re.Pattern[str], ...]) -> tuple[int, dict[str, float]] | None:
    """Return step and values that the first pattern finds in a line; None where none does, or what it finds is none.

    A terminal's colors are no part of the line.
    """
    text = uncolored(line)[:MAX_LINE]
    for pattern in patterns:
        if (matched := pattern.search(text)) is not None:
            texts = {name: part for name, part in matched.groupdict().items() if part is not None}
            try:
                step = int(float(texts.pop("step").replace(",", "")))
                values = {name.replace("__", "/"): float(part.replace(",", "")) for name, part in texts.items()}
            except (KeyError, ValueError, OverflowError):
                return None
            return (step, values) if 0 <= step < 1 << 31 and values else None
    return None


def _pattern(line: str) -> re.Pattern[str]:
    try:
        pattern = re.compile(line)
        tree = parser.parse(line)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(
            Sentence("{line} is no regular expression: {why}.", line=repr(line[:200]), why=str(error))
        ) from error
    if "step" not in pattern.groupindex or len(pattern.groupindex) < 2:
        example = "step (?P<step>\\d+) loss (?P<loss>\\S+)"
        text = "{line} names no step and a value. Write a pattern such as {example}."
        raise ValueError(Sentence(text, line=repr(line[:200]), example=example))
    if _may_run_away(tree, within=False):
        text = "{line} repeats a part that repeats itself, which takes far too long on some lines. Write it without."
        raise ValueError(Sentence(text, line=repr(line[:200])))
    return pattern


def _may_run_away(tree: Any, *, within: bool) -> bool:
    """Return True where a repetition without end holds another one: (a+)+ tries every way to divide a line."""
    for kind, argument in tree:
        if kind in _REPEATS:
            is_endless = argument[1] == kinds.MAXREPEAT
            if (within and is_endless) or _may_run_away(argument[2], within=within or is_endless):
                return True
        elif any(_may_run_away(inner, within=within) for inner in _parts(argument)):
            return True
    return False


def _parts(argument: Any) -> list[Any]:
    """Return the patterns that a part of a pattern holds."""
    if isinstance(argument, parser.SubPattern):
        return [argument]
    if isinstance(argument, list | tuple):
        return [part for each in argument for part in _parts(each)]
    return []
