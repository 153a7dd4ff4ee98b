"""Metrics from the lines that trainers print, as they come through Ray's log: OpenRLHF's and verl's.

    (PPOTrainer pid=812) INFO 11-20 12:00:00 ppo_trainer.py:551] ✨ Global step 3: {'policy_loss': 0.1, 'kl': nan}
    (TaskRunner pid=812) step:3 - actor/pg_loss:0.1 - actor/entropy:nan

Ray puts a prefix, an address and colors before a line; whatever cannot be read is passed over.
"""

import ast
import contextlib
import math
import re

from jobs.catalog.log_line import uncolored

_OPENRLHF = re.compile(r"Global step (\d{1,18}): (\{.*\})\s*$")
_VERL = re.compile(r"(?:^|\) )step:(\d{1,18}) - (\S+:.*)$")
_NAMES = {"nan": math.nan, "inf": math.inf, "NaN": math.nan, "Infinity": math.inf}

Step = tuple[int, dict[str, float]]


def openrlhf_step(line: str) -> Step | None:
    """Return step and values (named as in its TensorBoard files) of OpenRLHF's line, None of any other."""
    match = _OPENRLHF.search(uncolored(line))
    if match is None:
        return None
    try:
        tree = ast.parse(match[2], mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    found = {}
    if isinstance(tree, ast.Dict):
        for key, value in zip(tree.keys, tree.values, strict=True):
            number = _number(value)
            if isinstance(key, ast.Constant) and isinstance(key.value, str) and number is not None:
                found[f"train/{key.value}"] = number
    return (int(match[1]), found) if found else None


def verl_step(line: str) -> Step | None:
    """Return step and values of verl's console line, None of any other."""
    match = _VERL.search(uncolored(line).rstrip())
    if match is None:
        return None
    found = {}
    for part in match[2].split(" - "):
        name, _, text = part.partition(":")
        number = _text_number(text)
        if name and number is not None:
            found[name] = number
    return (int(match[1]), found) if found else None


def _number(node: ast.expr) -> float | None:
    """Return a literal number: also nan and inf, negative ones, and NumPy's and torch's `np.float64(0.1)`."""
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)) and not isinstance(node.value, bool):
        with contextlib.suppress(OverflowError):  # an integer of hundreds of digits
            return float(node.value)
        return None
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        number = _number(node.operand)
        return None if number is None else -number
    if isinstance(node, ast.Name):
        return _NAMES.get(node.id)
    if isinstance(node, ast.Call) and len(node.args) == 1:
        return _number(node.args[0])
    return None


def _text_number(text: str) -> float | None:
    inner = re.fullmatch(r"[\w.]+\((.*)\)", text.strip())
    try:
        return float(inner[1] if inner else text)
    except ValueError:
        return None
