"""Which lines a text or a regular expression means, in time that grows only with the text, whatever was typed.

Python's own expressions may take forever for some texts, and nobody can stop them: these are RE2's, as DuckDB has them.
They know no references to groups and no looking around.
"""

import atexit
import re
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from django.utils.translation import gettext as _

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_BY_LINE = re.compile(r"\\[AzZ]|\\[QCpP]|\(\?[a-zA-Z]*-[a-zA-Z]*m")
"""What means the ends of the text, or may: such an expression is held against lines only."""
_PUNCTUATION = re.compile(r"[!-/:-@\[-^`{-~]")
_SPECIAL = frozenset("\\.^$*+?{}[]|()")
_CLASSES = frozenset("dDwWsSbB")


class PatternInvalid(ValueError):
    """What was typed is no regular expression; the text says why."""


class LinePattern:
    """What lines are held against. Any thread may use it."""

    def __init__(self, text: str, *, is_expression: bool = True, minds_case: bool = False) -> None:
        """Raises: PatternInvalid."""
        body = text if is_expression else _PUNCTUATION.sub(r"\\\g<0>", text)
        self._expression = f"(?{'m' if minds_case else 'im'}){body}"
        self._is_by_line = is_expression and _BY_LINE.search(text) is not None
        self.literals = literals_of(body)
        import duckdb  # 28 MB that most processes never need

        try:
            self.in_text("")
        except duckdb.Error as error:
            reason = str(error).partition(": ")[2].splitlines()[0].removesuffix(f": {self._expression}")
            raise PatternInvalid(
                _("“%(text)s” is no regular expression: %(reason)s.") % {"text": text, "reason": reason}
            ) from error

    def in_text(self, text: str) -> bool:
        """Return False if no line of the text matches; True where one may."""
        if self._is_by_line and text:
            return True
        return bool(_rows("SELECT regexp_matches(?, ?)", text, self._expression)[0][0])

    def matching(self, lines: Sequence[str]) -> list[int]:
        """Return the places of the lines that match."""
        if not lines:
            return []
        return sorted(place for (place,) in _rows(_MATCHING, list(lines), len(lines), self._expression))


_MATCHING = """
SELECT place FROM (SELECT unnest(?::VARCHAR[]) AS line, unnest(range(?)) AS place) WHERE regexp_matches(line, ?)
"""


def literals_of(expression: str) -> tuple[tuple[str, ...], ...]:
    """Return, for each alternative of an expression, texts of three letters and more that every match has.

    () if a match may have none. Only what stands outside of groups is looked at.
    """
    alternatives: list[list[str]] = [[]]
    run = ""

    def end(*, drops_last: bool = False) -> None:
        nonlocal run
        run = run[:-1] if drops_last else run
        if len(run) >= 3:
            alternatives[-1].append(run)
        run = ""

    at = 0
    while at < len(expression):
        char = expression[at]
        if char == "\\":
            following = expression[at + 1 : at + 2]
            at += 2
            if following and not following.isalnum() and following.isascii():
                run += following
            elif following in _CLASSES:
                end()
            else:
                return ()
            continue
        if char == "[":
            at = _behind_class(expression, at)
            end()
            continue
        if char == "(":
            at = _behind_group(expression, at)
            end()
            continue
        at += 1
        if char == "|":
            end()
            alternatives.append([])
        elif char in "*?{":
            end(drops_last=True)
            if char == "{":
                at = max(at, expression.find("}", at) + 1)
        elif char in _SPECIAL:
            end()
        else:
            run += char
    end()
    return tuple(map(tuple, alternatives)) if all(alternatives) else ()


def _behind_class(expression: str, at: int) -> int:
    at += 2 if expression[at + 1 : at + 2] == "^" else 1
    at += expression[at : at + 1] == "]"
    while at < len(expression) and expression[at] != "]":
        if expression.startswith("[:", at):
            at = max(at + 1, expression.find(":]", at) + 2)
        else:
            at += 2 if expression[at] == "\\" else 1
    return at + 1


def _behind_group(expression: str, at: int) -> int:
    depth = 0
    while at < len(expression):
        char = expression[at]
        if char == "[":
            at = _behind_class(expression, at)
            continue
        depth += (char == "(") - (char == ")")
        at += 2 if char == "\\" else 1
        if not depth:
            break
    return at


@cache
def _database() -> "DuckDBPyConnection":
    """Return this process's database in memory, which holds nothing."""
    import duckdb

    database = duckdb.connect(config={"threads": 1})
    atexit.register(_close)
    return database


def _close() -> None:
    """Let go of what DuckDB would complain of when the process ends."""
    _database().close()
    _database.cache_clear()


def _rows(query: str, *values: object) -> list[Any]:
    with _database().cursor() as cursor:  # each thread needs its own
        return cursor.execute(query, values).fetchall()


@lru_cache(maxsize=64)
def level_pattern(expression: str) -> LinePattern:
    """Return a pattern of jobs.catalog.log_level, or one made of it."""
    return LinePattern(expression, minds_case=True)
