"""Two recordings of stacks alone against each other: functions, each with the time in which it was the innermost.

How long was sampled says nothing of how fast the program is, so times are told of each second of all threads together,
and only shares of it can differ. A function is one whichever of its lines was seen.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping

from profiling.analysis.comparability import SideFacts
from profiling.analysis.difference import MOST, Difference, items_of
from profiling.analysis.flame import own_times
from profiling.evidence import RecordedTrace

SECOND = 1e9
_LINE = re.compile(r":\d+(?=\)?$)|(?<=\.py)\(\d+\)(?=: )")
"""Of a frame: `step (train.py:12)` of py-spy, `train.py:step:12` of austin, `train.py(12): step` of torch."""


def functions_of(recorded: Iterable[RecordedTrace], window: tuple[int, int] | None) -> dict[str, int]:
    """Return the own time of each function in a window (Unix ns), by default in all of the recording; {} of no stacks.

    In ns, on all threads together. Raises: TooManyEvents.
    """
    times: Counter[str] = Counter()
    for one in recorded:
        begin, end = window or (one.store.begin, one.store.end + 1)
        for name, own in own_times(one.store, begin=begin, end=end, by="frames").items():
            times[_LINE.sub("", name)] += own
    return dict(times)


def function_difference(one: Mapping[str, int], other: Mapping[str, int]) -> Difference:
    """Return what differs per second from the functions of one recording to those of another, neither of them empty."""
    before, after = (
        {("function", name): (SECOND * own / sum(side.values()), 0.0) for name, own in side.items()}
        for side in (one, other)
    )
    items = items_of(before, after, 0.0)
    return Difference(
        before=SECOND,
        after=SECOND,
        steps_before=1,
        steps_after=1,
        items=tuple(items[:MOST]),
        num_items=len(items),
        rest=sum(item.delta for item in items[MOST:]),
        unexplained=0.0,
        operators=(),
        phases=(),
        kinds=(),
    )


def function_facts(recorded: Iterable[RecordedTrace], functions: Mapping[str, int]) -> SideFacts:
    """Return what recordings of stacks are held together by: their functions. How many samples, and of which tool, says
    nothing of shares.
    """
    stores = [one.store for one in recorded]
    of_stores = (number for store in stores for number in (store.begin, store.end, store.facts.events))
    return SideFacts(
        device="",
        source="",
        schema="",
        versions={},
        has_device=False,
        calls=1,
        names=frozenset(functions),
        identity=(sum(functions.values()), *of_stores),
    )
