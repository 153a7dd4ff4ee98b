"""The code in a response, and the tests of a row of data: what is run, and what is one case."""

import ast
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

FENCE = "```"
_FORMS = (
    'Use assert statements as text or in a list, or [{"input": "1 2", "output": "3"}] for a program that reads stdin.'
)


class TestsUnreadable(ValueError):
    """A row's tests are no tests; the text says why, and what is allowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeTests:
    """Either pieces of Python, each a case or what cases need, or what a program is given and has to print."""

    asserts: tuple[tuple[bool, str], ...] = ()
    cases: tuple[tuple[str, str], ...] = ()

    @property
    def num_cases(self) -> int:
        """How many cases there are."""
        return len(self.cases) or sum(is_case for is_case, _ in self.asserts)

    def job(self, code: str) -> dict[str, Any]:
        """Return what a box is asked."""
        return {"code": code, "cases": self.cases} if self.cases else {"code": code, "asserts": self.asserts}


def code_of(completion: str) -> str:
    """Return the code of a response: its last fenced block, without its end if it was cut; all of it without one."""
    blocks: list[str] = []
    lines: list[str] | None = None
    for line in completion.split("\n"):
        if line.lstrip().startswith(FENCE):
            if lines is not None:
                blocks.append("\n".join(lines))
            lines = [] if lines is None else None
        elif lines is not None:
            lines.append(line)
    if lines is not None:
        blocks.append("\n".join(lines))
    return blocks[-1] if blocks else completion


@lru_cache(maxsize=4096)
def tests_of(text: str) -> CodeTests:
    """Return the tests that a cell of the data holds: Python, or JSON of lists and objects.

    Of Python each `assert`, and each call that stands alone (`check(f)`), at the outermost level is a case; all else is
    what they need. JSON is a list of such texts, a list of {"input", "output"}, or {"inputs": [...], "outputs": [...]}.
    Raises: TestsUnreadable.
    """
    try:
        value = json.loads(text)
    except ValueError:
        value = text
    if isinstance(value, Mapping):
        value = _paired(value)
    if isinstance(value, Sequence) and not isinstance(value, str) and value:
        if all(isinstance(each, str) for each in value):
            value = "\n".join(value)
        elif all(isinstance(each, Mapping) and {"input", "output"} <= set(each) for each in value):
            return CodeTests(cases=tuple((_lines(each["input"]), _lines(each["output"])) for each in value))
    if not isinstance(value, str):
        raise TestsUnreadable(f"Tests are {text[:60]!r}, which is none of their forms. {_FORMS}")
    return _of_python(value)


def _of_python(source: str) -> CodeTests:
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        why = f"{type(error).__name__} in line {getattr(error, 'lineno', None) or 1}"
        raise TestsUnreadable(f"Tests are {source[:60]!r}, which is no Python ({why}). {_FORMS}") from error
    tests = CodeTests(
        asserts=tuple(
            (
                isinstance(node, ast.Assert) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)),
                ast.unparse(node),
            )
            for node in tree.body
        )
    )
    if not tests.num_cases:
        raise TestsUnreadable(f"Tests are {source[:60]!r}, and no case is in them. {_FORMS}")
    return tests


def _paired(value: Mapping[str, Any]) -> object:
    """Return the cases of {"inputs": [...], "outputs": [...]}."""
    inputs, expected = value.get("inputs"), value.get("outputs")
    if isinstance(inputs, list) and isinstance(expected, list) and len(inputs) == len(expected):
        return [{"input": one, "output": other} for one, other in zip(inputs, expected, strict=True)]
    return value


def _lines(value: object) -> str:
    """Return what is read or printed: a text, or lines of it in a list."""
    if isinstance(value, list):
        return "\n".join(map(str, value))
    return value if isinstance(value, str) else json.dumps(value)
