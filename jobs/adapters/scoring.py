"""The built-in rewards as Python source that any trainer can carry: `reward(prompt, completion, answer) -> float`.

They score as the plugins of `jobs.engine.rewards` do (a test holds them against each other), and need nothing of
Pitwall, which another trainer's environment does not have: boxes and formulas are read by the built-in trainer alone. A
custom reward already comes as source.
"""

from jobs.catalog.spec.runspec import RewardSource

_MATH = '''"""0.9 if the last `#### N` is the expected number, 0.1 for having written one."""

import re
from decimal import Decimal, InvalidOperation

_MARKED = re.compile(r"####\\s*\\$?(-?[\\d,]*\\.?\\d+)")


def number(text):
    marked = _MARKED.findall(text)
    try:
        return Decimal((marked[-1] if marked else text).strip().lstrip("$").replace(",", ""))
    except InvalidOperation:
        return None


def reward(prompt, completion, answer):
    marked = _MARKED.findall(completion)
    expected = number(answer)
    is_right = bool(marked) and expected is not None and number(marked[-1]) == expected
    return 0.9 * is_right + 0.1 * bool(marked)
'''

_EXACT_MATCH = '''"""1 if the completion is the expected answer, white space at the ends and case aside; else 0."""


def reward(prompt, completion, answer):
    return float(completion.strip().casefold() == answer.strip().casefold())
'''

_FORMAT = '''"""1 if the completion ends with one `#### N` and nothing after it; else 0."""

import re

_ENDING = re.compile(r"####\\s*-?[\\d,]*\\.?\\d+\\s*$")


def reward(prompt, completion, answer):
    return float(bool(_ENDING.search(completion)) and completion.count("####") == 1)
'''

SOURCES = {"math": _MATH, "exact_match": _EXACT_MATCH, "format": _FORMAT}


def source_of(reward: RewardSource) -> str:
    """Return the Python source that defines `reward(prompt, completion, answer)`.

    Raises: KeyError for a reward that is no source: a file, a URL or a model on the cluster.
    """
    return reward.source if reward.kind == "custom" else SOURCES[reward.kind]
