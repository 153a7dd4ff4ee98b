"""Short names for runs that stand beside each other: what all of them share is left out. No database."""

import re
from collections.abc import Mapping

_BETWEEN = "-_ /,:·"
_WORD = re.compile(rf"[{_BETWEEN}]+|(?:\d+(?:\.\d+)?e[-+]\d+|[^{_BETWEEN}])+")  # lr=1e-4 is one word


def short_names(names: Mapping[str, str]) -> dict[str, str]:
    """Return run id -> short name. Words that every name begins or ends with go; equal names get their ids.

    `qwen-grpo-t05` and `qwen-grpo-t06` become `t05` and `t06`. Where nothing would be left of a name, all keep theirs:
    a run and its clone are `math` and `math 2`, not `math` and `2`.
    """
    words = {run_id: _WORD.findall(name) for run_id, name in names.items()}
    shortest = min((len(parts) for parts in words.values()), default=0)
    lists = list(words.values())
    first = last = 0
    if len(lists) > 1:
        while first < shortest and len({parts[first] for parts in lists}) == 1:
            first += 1
        while last < shortest - first and len({parts[-1 - last] for parts in lists}) == 1:
            last += 1
        if any(not "".join(parts[first : len(parts) - last]).strip(_BETWEEN) for parts in lists):
            first = last = 0
    short = {
        run_id: "".join(parts[first : len(parts) - last]).strip(_BETWEEN) or names[run_id]
        for run_id, parts in words.items()
    }
    counts = list(short.values())
    return {run_id: name if name and counts.count(name) == 1 else run_id for run_id, name in short.items()}


def line_dashes(colors: Mapping[str, int]) -> dict[str, int]:
    """Return run id -> which dash its line has: 0 is drawn through.

    The eleventh color is the first one dashed, and a run whose color another one here has already goes to the next.
    """
    taken: set[tuple[int, int]] = set()
    dashes = {}
    for run_id, color in colors.items():
        dash = color // 10
        while (color % 10, dash) in taken:
            dash += 1
        taken.add((color % 10, dash))
        dashes[run_id] = dash
    return dashes
