"""What nsys saw of the CPU: stacks, sampled (--sample) or of long calls, and when threads were scheduled (--cpuctxsw).

A sample is a row of COMPOSITE_EVENTS and the rows of its number in SAMPLING_CALLCHAINS, of depth 0 for the innermost
frame. SCHED_EVENTS says when a thread was given a CPU, and when it was taken off. Source: the schema of the exports, in
"Exporting and SQLite Schema" of the User Guide.
"""

from array import array
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

import numpy as np

from profiling.trace.formats.sqlite_tables import Tables

MOST_SAMPLES = 2_000_000
MOST_SWITCHES = 2_000_000
"""Rows of SCHED_EVENTS."""
DEEPEST = 128
"""Frames of a stack, counted from the innermost one."""

_MOST_FRAMES = 5_000_000  # of all stacks that differ
_LONGEST = 64 << 20  # characters of all names of frames: a short file could pair long ones in many ways
_UNKNOWN = "[unknown]"
_RUNNING = frozenset({None, 0, 1})
"""States of a thread in which its stack is that of code that runs: not told, unknown, running."""

Samples = dict[int, list[tuple[int, int]]]
"""Of each thread (globalTid) when it was sampled, in ns of the session, and the number of its stack; by time."""


class Callchains:
    """The call stacks of an export's table of them; equal ones are held once. `left_out` is how many were too much.

    Its columns are the same whether stacks were sampled (SAMPLING_CALLCHAINS), or taken where a call to the operating
    system (OSRT_CALLCHAINS) or to CUDA (CUDA_CALLCHAINS) took long.
    """

    def __init__(self, tables: Tables, table: str, texts: Mapping[int, str]) -> None:
        self._texts = texts
        self._stacks: list[tuple[int, ...]] = []  # frames by number, the outermost first
        self._frames: dict[tuple[Any, Any, bool], int] = {}
        self._names: list[str] = []
        self._room = _LONGEST
        self.left_out = 0
        self._by_id = self._read(tables, table)

    def __bool__(self) -> bool:
        return bool(self._by_id)

    def stack(self, number: Any) -> int | None:
        """Return which stack a chain's number, of any type, stands for; None for none."""
        return self._by_id.get(number) if isinstance(number, int) else None

    def names(self, stack: int) -> list[str]:
        """Return the frames of a stack, the outermost first."""
        return [self._names[frame] for frame in self._stacks[stack]]

    def _read(self, tables: Tables, table: str) -> dict[Any, int]:
        """Return the stack of each chain's number."""
        numbers: dict[tuple[int, ...], int] = {}
        by_id: dict[Any, int] = {}
        room = _MOST_FRAMES
        columns = ("id", "stackDepth", "symbol", "module", "unresolved")
        for number, rows in groupby(tables.rows(table, *columns), key=lambda row: row[0]):
            chain: list[tuple[int, int]] = []
            for _, depth, *frame in rows:
                if type(depth) is int and 0 <= depth < DEEPEST and len(chain) < DEEPEST:
                    chain.append((-depth, self._frame(*frame)))
            chain.sort()
            stack = tuple(frame for _, frame in chain)
            if stack not in numbers:
                room -= len(stack)
                if room < 0:
                    self.left_out += 1
                    continue
                numbers[stack] = len(self._stacks)
                self._stacks.append(stack)
            if len(by_id) < MOST_SAMPLES:
                by_id[number] = numbers[stack]
        return by_id

    def _frame(self, symbol: Any, module: Any, unresolved: Any) -> int:
        """Return the number of a frame; what has no symbol is one frame for each module, not one for each address."""
        key = None if unresolved == 1 else symbol, module, unresolved == 1
        number = self._frames.get(key)
        if number is None:
            file = self._texts.get(module, "").rsplit("/", 1)[-1]
            function = _UNKNOWN if unresolved == 1 else self._texts.get(symbol, _UNKNOWN)
            number = self._frames[key] = len(self._names)
            name = f"{function} ({file})" if file and file != function else function
            self._room -= len(name)
            self._names.append(name if self._room >= 0 else _UNKNOWN)
        return number


class SampledStacks(Callchains):
    """The samples of an export, with their stacks."""

    def __init__(self, tables: Tables, texts: Mapping[int, str]) -> None:
        super().__init__(tables, "SAMPLING_CALLCHAINS", texts)
        self.samples: Samples = {}
        count = 0
        columns = ("id", "start", "globalTid", "threadState")
        for number, start, tid, state in tables.rows("COMPOSITE_EVENTS", *columns) if self else ():
            stack = self.stack(number)
            if stack is None or state not in _RUNNING or type(start) is not int or type(tid) is not int:
                continue
            count += 1
            if count > MOST_SAMPLES:
                self.left_out += 1
            else:
                self.samples.setdefault(tid, []).append((start, stack))
        for rows in self.samples.values():
            rows.sort()


def scheduled(tables: Tables) -> Iterator[tuple[int, int, int, bool, int]]:
    """Yield thread, start, end, whether it was on a CPU then, and on which: between two events of one thread.

    Two events of one kind that follow each other say that one was lost: what lies between them is not told.
    """
    columns = {key: array("q") for key in ("tid", "start", "is_in", "cpu")}
    for start, tid, is_in, cpu in tables.rows("SCHED_EVENTS", "start", "globalTid", "isSchedIn", "cpu"):
        if not (type(start) is type(tid) is type(is_in) is int and is_in in (0, 1)):
            continue
        if len(columns["tid"]) >= MOST_SWITCHES:
            break
        row = tid, start, is_in, cpu if type(cpu) is int else -1
        for values, value in zip(columns.values(), row, strict=True):
            values.append(value)
    tids, starts, ins, cpus = (np.array(values, np.int64) for values in columns.values())
    order = np.lexsort((starts, tids))  # stable: events of one moment stay as they were written
    tids, starts, ins, cpus = tids[order], starts[order], ins[order], cpus[order]
    rows = np.flatnonzero((tids[1:] == tids[:-1]) & (ins[1:] != ins[:-1]) & (starts[1:] > starts[:-1]))
    yield from zip(
        tids[rows].tolist(),
        starts[rows].tolist(),
        starts[rows + 1].tolist(),
        (ins[rows] == 1).tolist(),
        cpus[rows].tolist(),
        strict=True,
    )
