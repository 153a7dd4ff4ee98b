"""When a run counts as hanging, and what its log then says: the same for every trainer."""

import statistics
from collections.abc import Iterator, Sequence

from profiling.stacks import StackGroup

LEAST_SECONDS = 300.0
STEPS = 5.0
FIRST = 3.0
"""The first step compiles and allocates: this many times the patience."""

MOST_GROUPS = 20


def patience(step_seconds: Sequence[float]) -> float:
    """Return after how many seconds without progress a run counts as hanging; without steps that of the first one."""
    return max(LEAST_SECONDS, STEPS * statistics.median(step_seconds)) if step_seconds else LEAST_SECONDS * FIRST


def hang_lines(groups: Sequence[StackGroup], silent: Sequence[str], waited: float) -> Iterator[str]:
    """Yield what the log says: for each stack who has it, the innermost call last; `waited` in seconds."""
    yield f"No progress for {waited:.0f} s. Where everybody stands:"
    for group in groups[:MOST_GROUPS]:
        yield f"  {', '.join(group.where)}:"
        yield from (f"    {call}" for call in group.stack)
    if silent:
        yield f"  No answer from {', '.join(silent)}: dead, or stuck in native code."


def hang_meta(groups: Sequence[StackGroup], silent: Sequence[str], waited: float) -> dict[str, object]:
    """Return what a note tells of it besides its text."""
    stacks = [{"where": list(group.where), "stack": list(group.stack)} for group in groups[:MOST_GROUPS]]
    return {"seconds": waited, "silent": list(silent), "stacks": stacks}
