"""Small traces, written down event by event."""

from collections.abc import Mapping, Sequence

import numpy as np

from profiling.analysis.intervals import Ints
from profiling.analysis.work import Events, WorkerEvents
from profiling.trace.category import Category
from profiling.trace.store import Lane

THREADS = ("main", "other")


def work(
    rows: Sequence[tuple], *, begin: int = 0, end: int = 1000, role: str = "policy", rank: int = 0
) -> WorkerEvents:
    """Return a worker of rows (lane, category, name, start, end) and, for some, a dict of further columns.

    The lanes "main" and "other" are threads, every other one a stream of device 0.
    """
    lanes = list(dict.fromkeys(row[0] for row in rows))
    names = list(dict.fromkeys(row[2] for row in rows))
    columns = {
        key: np.zeros(len(rows), np.int64) for key in ("lane", "ts", "dur", "name", "cat", "link", "outer", "bytes")
    }
    for i, (lane, category, name, start, until, *more) in enumerate(rows):
        values = {
            "lane": lanes.index(lane),
            "ts": start,
            "dur": until - start,
            "name": names.index(name),
            "cat": int(Category[category.upper()]),
            **(more[0] if more else {}),
        }
        for key, value in values.items():
            columns[key][i] = value
    return WorkerEvents(
        events=events_of(columns),
        names=names,
        lanes={i: _lane(i, title) for i, title in enumerate(lanes)},
        begin=begin,
        end=end,
        role=role,
        rank=rank,
    )


def events_of(columns: Mapping[str, Ints]) -> Events:
    """Return columns as Events; those that are left out are 0."""
    n = len(columns["ts"])
    whole = {name: np.asarray(columns.get(name, np.zeros(n, np.int64)), np.int64) for name in Events.__slots__}
    order = np.lexsort((-whole["dur"], whole["ts"], whole["lane"]))
    return Events(**{name: values[order] for name, values in whole.items()})


def _lane(number: int, title: str) -> Lane:
    is_thread = title in THREADS
    return Lane(
        id=number,
        kind="thread" if is_thread else "stream",
        process="python",
        pid=7,
        thread=title if is_thread else "",
        tid=number,
        device=-1 if is_thread else 0,
        stream=-1 if is_thread else number,
        title=title,
        depths=1,
        events=1,
    )
