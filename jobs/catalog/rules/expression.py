"""Small expressions over a run's fields, for rules written as data: Python's syntax, none of its reach.

A dotted name is a knob (`train.micro_batch_size`), a field of the spec (`model.id`, `trainer.name`, `algorithm`) or a
derived quantity (`gpus.total`, see `spec/derived.py`). Allowed are comparisons (`a < b <= c`, `in`), `and`, `or`,
`not`, `+ - * / // %`, `x if c else y`, numbers, texts, lists, `None`, the functions of `FUNCTIONS`, and two that look
at names: `has(async.enable)` is True where the run has such a knob and it means something beside the others, and
`get(async.enable, False)` is its value there, else the second.
"""

import ast
import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from jobs.catalog.trainer import as_version

Lookup = Callable[[str], Any]


class NotApplicable(LookupError):
    """The expression asks for something that this run does not have: the rule does not concern it."""


class ExpressionInvalid(ValueError):
    """The text is not one of these expressions."""


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "min": min,
    "max": max,
    "len": len,
    "ceil": math.ceil,
    "divides": lambda part, whole: part > 0 and whole % part == 0,
    "version": as_version,
    "round": round,
    "words": lambda text: [part.strip() for part in str(text or "").split(",") if part.strip()],
    "joined": lambda items: ", ".join(map(str, items)),
    "all_in": lambda items, allowed: all(item in allowed for item in items),
    "all_whole": lambda items: all(str(item).isdecimal() for item in items),
    "ends_with": lambda text, *ends: str(text).endswith(ends),
    "starts_with": lambda text, *starts: str(text).startswith(starts),
}
_AT_NAMES = ("has", "get")
_KEYWORD = re.compile(r"\b(async|is)\.")
"""Groups that are called like a word of Python."""

_BINARY: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_COMPARE: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
}


@dataclass(frozen=True, slots=True)
class Expression:
    """A parsed expression; `names` are the dotted names it reads."""

    text: str
    tree: ast.expr
    names: tuple[str, ...]

    def value(self, lookup: Lookup) -> Any:
        """Return its value.

        Raises: NotApplicable where `lookup` does, where a value that is not set is used, or by zero divided.
        """
        try:
            return _value(self.tree, lookup)
        except (TypeError, ValueError, ZeroDivisionError) as error:
            raise NotApplicable(self.text) from error


@cache
def parse_expression(text: str) -> Expression:
    """Return the expression. Raises: ExpressionInvalid, naming what is not allowed."""
    try:
        tree = ast.parse(_KEYWORD.sub(r"\1_.", text.strip()), mode="eval").body
    except SyntaxError as error:
        raise ExpressionInvalid(f"{text!r} is no expression: {error.msg}.") from error
    names: list[str] = []
    _check(tree, text, names)
    return Expression(text, tree, tuple(dict.fromkeys(names)))


def _dotted(node: ast.expr) -> str | None:
    if isinstance(node, ast.Name):
        return node.id.removesuffix("_")
    if isinstance(node, ast.Attribute):
        base = _dotted(node.value)
        return None if base is None else f"{base}.{node.attr}"
    return None


def _check(node: ast.expr, text: str, names: list[str]) -> None:
    if (name := _dotted(node)) is not None:
        names.append(name)
        return
    if isinstance(node, ast.Call):
        functions = (*FUNCTIONS, *_AT_NAMES)
        if not isinstance(node.func, ast.Name) or node.func.id not in functions or node.keywords:
            raise ExpressionInvalid(f"{text!r} calls what is no function here. Use {', '.join(functions)}.")
        parts: list[ast.expr] = node.args
        if node.func.id in _AT_NAMES and (len(parts) != (node.func.id == "get") + 1 or _dotted(parts[0]) is None):
            raise ExpressionInvalid(f"{text!r}: {node.func.id} takes a name first, as in has(async.enable).")
    elif isinstance(node, ast.BoolOp):
        parts = node.values
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.USub)):
        parts = [node.operand]
    elif isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        parts = [node.left, node.right]
    elif isinstance(node, ast.Compare) and all(type(op) in _COMPARE for op in node.ops):
        parts = [node.left, *node.comparators]
    elif isinstance(node, ast.IfExp):
        parts = [node.test, node.body, node.orelse]
    elif isinstance(node, (ast.List, ast.Tuple)):
        parts = node.elts
    elif isinstance(node, ast.Constant) and isinstance(node.value, (int, float, str, bool, type(None))):
        parts = []
    else:
        raise ExpressionInvalid(f"{text!r} holds {ast.unparse(node)!r}, which is not allowed here.")
    for part in parts:
        _check(part, text, names)


def _value(node: ast.expr, lookup: Lookup) -> Any:
    if (name := _dotted(node)) is not None:
        return lookup(name)
    match node:
        case ast.Constant():
            return node.value
        case ast.BoolOp(op=junction):  # as in Python: the value that decides, not only whether it is true
            for part in node.values[:-1]:
                value = _value(part, lookup)
                if bool(value) is not isinstance(junction, ast.And):
                    return value
            return _value(node.values[-1], lookup)
        case ast.UnaryOp(op=ast.Not()):
            return not _value(node.operand, lookup)
        case ast.UnaryOp():
            return -_value(node.operand, lookup)
        case ast.BinOp():
            return _BINARY[type(node.op)](_value(node.left, lookup), _value(node.right, lookup))
        case ast.Compare():
            left = _value(node.left, lookup)
            for op, part in zip(node.ops, node.comparators, strict=True):
                right = _value(part, lookup)
                if not _COMPARE[type(op)](left, right):
                    return False
                left = right
            return True
        case ast.IfExp():
            return _value(node.body if _value(node.test, lookup) else node.orelse, lookup)
        case ast.List() | ast.Tuple():
            return [_value(part, lookup) for part in node.elts]
        case ast.Call(func=ast.Name(id="has" | "get"), args=[name_node, *rest]):
            name = _dotted(name_node)
            assert name is not None
            try:
                value = lookup(name)
            except NotApplicable:
                return _value(rest[0], lookup) if rest else False
            return value if rest else True
        case ast.Call(func=ast.Name(id=function)):
            return FUNCTIONS[function](*[_value(part, lookup) for part in node.args])
    raise AssertionError(f"_check let {ast.dump(node)} through")
