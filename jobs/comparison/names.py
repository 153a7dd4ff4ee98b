"""Short names for runs that stand beside each other: what all of them share is left out. No database."""

import re
from collections.abc import Mapping

_BETWEEN = "-_ /,:·"
_LONG = 22
"""Characters; a name with more is cut where there is little room, so that its end would not be read."""
_SHARED = 8
"""Characters that are at least left out of a name that not all share."""
_WORD = re.compile(rf"[{_BETWEEN}]+|(?:\d+(?:\.\d+)?e[-+]\d+|[^{_BETWEEN}])+")  # lr=1e-4 is one word


def short_names(names: Mapping[str, str]) -> dict[str, str]:
    """Return run id -> short name. Words that every name begins or ends with go; equal names get their ids.

    `qwen-grpo-t05` and `qwen-grpo-t06` become `t05` and `t06`. Where nothing would be left of a name, all keep theirs:
    a run and its clone are `math` and `math 2`, not `math` and `2`, or, where these are long, `qwen…t05` and
    `qwen…t05 2`. What is long still loses what some of the others
    begin with, after its first word: `qwen-1.5b-grpo-gsm8k-t05` beside `demo` is `qwen…t05`; and of a sweep the knobs
    that all name: `lr=1e-6, loss_aggregation=token_mean` is `1e-6, token_mean`.
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
    short = _without_knobs(short)
    clones, begun = _without_middles(short), _without_beginnings(short)
    cut = {run_id: clones[run_id] if name == short[run_id] else name for run_id, name in begun.items()}
    counts = list(cut.values())
    short = {run_id: name if counts.count(name) == 1 else short[run_id] for run_id, name in cut.items()}
    counts = list(short.values())
    return {run_id: name if name and counts.count(name) == 1 else run_id for run_id, name in short.items()}


def _without_knobs(names: Mapping[str, str]) -> dict[str, str]:
    """Return the names without the knobs of `knob=value, …` where all name the same and one is long."""
    parts = {run_id: [part.partition("=") for part in name.split(", ")] for run_id, name in names.items()}
    knobs = {tuple(knob for knob, _, _ in pairs) for pairs in parts.values()}
    has_values = all(sign and value for pairs in parts.values() for _, sign, value in pairs)
    if len(names) < 2 or len(knobs) != 1 or not has_values or max(map(len, names.values())) <= _LONG:
        return dict(names)
    return {run_id: ", ".join(value for _, _, value in pairs) for run_id, pairs in parts.items()}


def _without_beginnings(names: Mapping[str, str]) -> dict[str, str]:
    """Return the names, the long ones with … for what they share with another after their first word."""
    words = {run_id: _WORD.findall(name) for run_id, name in names.items()}
    cut = dict(names)
    for run_id, own in words.items():
        if len(names[run_id]) <= _LONG:
            continue
        shared = max((_num_shared(own, other) for other_id, other in words.items() if other_id != run_id), default=0)
        rest = "".join(own[shared:]).strip(_BETWEEN)
        if rest and len("".join(own[1:shared])) >= _SHARED:
            cut[run_id] = f"{own[0]}…{rest}"
    return cut


def _without_middles(names: Mapping[str, str]) -> dict[str, str]:
    """Return the names; of a run and its clones, which differ at the end alone, long ones without their middle."""
    words = {run_id: _WORD.findall(name) for run_id, name in names.items()}
    cut = dict(names)
    for run_id, own in words.items():
        others = [other for other_id, other in words.items() if other_id != run_id]
        shared = min((min(len(own), len(other)) for other in others if _is_clone(own, other)), default=0)
        if len(names[run_id]) > _LONG and len("".join(own[1 : shared - 1])) >= _SHARED:
            cut[run_id] = f"{own[0]}…{''.join(own[shared - 1 :])}"
    return cut


def _is_clone(own: list[str], other: list[str]) -> bool:
    """Return True if one is all of the other's beginning."""
    return own != other and all(pair[0] == pair[1] for pair in zip(own, other, strict=False))


def _num_shared(own: list[str], other: list[str]) -> int:
    """Return how many words both begin with; 0 where one is all of the other's beginning: a run and its clone."""
    shared = next((i for i, pair in enumerate(zip(own, other, strict=False)) if pair[0] != pair[1]), None)
    return 0 if shared is None else shared


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
