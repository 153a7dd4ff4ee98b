"""What threads did in a recorded file: which of them work for the device, and which calls wait for it."""

import numpy as np

from profiling.evidence import Ints, RecordedTrace
from profiling.trace.category import Category


def working_lanes(recorded: RecordedTrace) -> Ints:
    """Return the lanes of threads that launch work of a device or run operators, with those beside them, ascending.

    What a thread of a pool is in, which only waits for its turn, says nothing of the program.
    """
    rows = recorded.store.sql(
        "SELECT DISTINCT lane FROM ev WHERE cat = ? OR (cat = ? AND link > 0)",
        [int(Category.OPERATOR), int(Category.RUNTIME)],
    )
    at_work = set(rows["lane"].tolist())
    threads = {(lane.pid, lane.tid) for lane in recorded.store.lanes if lane.id in at_work and lane.kind == "thread"}
    return np.array([lane.id for lane in recorded.store.lanes if (lane.pid, lane.tid) in threads], np.int64)


def marked_steps(recorded: RecordedTrace) -> tuple[Ints, Ints]:
    """Return begins and ends of the steps that threads mark, by begin: what the CPU was in, whatever ran meanwhile."""
    marks = recorded.events(categories=[Category.STEP], columns=("ts", "dur"))
    order = np.argsort(marks["ts"], kind="stable")
    return marks["ts"][order], (marks["ts"] + marks["dur"])[order]
