"""What a device did in a recorded file: unions of its work over time, and the calls that launched it."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from profiling.analysis.intervals import Intervals, clipped, total, union
from profiling.analysis.repetition import common, found_steps
from profiling.analysis.window import steps
from profiling.analysis.workers import device_words
from profiling.diagnosis.finding import Observation
from profiling.evidence import Evidence, Ints, RecordedTrace, Step
from profiling.trace.category import DEVICE, Category
from profiling.trace.launches import launch_names
from profiling.trace.store import Lane

FEWEST_LAUNCHES = 3
"""Recorded launches of a device; fewer say nothing of how the CPU keeps up."""
_ON_THREADS = frozenset(Category) - DEVICE - {Category.RUNTIME, Category.SYNC, Category.SYSTEM, Category.OVERHEAD}
_COLUMNS = ("lane", "ts", "dur", "name", "cat", "link", "outer", "bytes")


@dataclass(frozen=True, kw_only=True)
class DeviceWork:
    """Everything that ran on one device within one file; columns [n] sorted by start.

    `begin` and `end` (Unix ns) are those of the steps, marked or found by what repeats, as in the budget; of the
    recording where there are none.
    """

    recorded: RecordedTrace
    device: int
    process: str
    pid: int
    start: Ints
    duration: Ints
    name: Ints
    category: Ints
    link: Ints
    outer: Ints
    stream: Ints
    bytes: Ints
    begin: int
    end: int

    @property
    def window(self) -> int:
        """Length of the window [ns]."""
        return max(1, self.end - self.begin)

    def of(self, *categories: Category) -> Intervals:
        """Return the union of the work of these categories."""
        return self.moments(np.isin(self.category, [int(one) for one in categories]))

    def moments(self, rows: npt.NDArray[np.bool_]) -> Intervals:
        """Return the union of some of the work within the window."""
        return clipped(union(self.start[rows], self.start[rows] + self.duration[rows]), self.begin, self.end)

    @cached_property
    def busy(self) -> Intervals:
        """When the device did anything."""
        return self.of(*DEVICE)

    @property
    def busy_share(self) -> float:
        """Share of the window in which it did anything."""
        return total(self.busy) / self.window

    @cached_property
    def kernels(self) -> npt.NDArray[np.bool_]:
        """Which rows are kernels that compute."""
        return self.category == Category.KERNEL

    @property
    def has_kernels(self) -> bool:
        """Return True if kernels were recorded, of whatever kind: else nothing tells when the device was at work."""
        return bool(np.isin(self.category, [int(Category.KERNEL), int(Category.COMMUNICATION)]).any())

    @cached_property
    def launches(self) -> tuple[Ints, Ints]:
        """Begin and length [ns] of the call that launched each row; -1 where it is not recorded."""
        store = self.recorded.store
        threads = [lane.id for lane in store.lanes if lane.kind == "thread" and lane.pid == self.pid]
        calls = self.recorded.events(
            lanes=threads, categories=[Category.RUNTIME, Category.SYNC], columns=("ts", "dur", "link", "cat", "name")
        )
        is_call = (calls["cat"] == Category.RUNTIME) | np.isin(calls["name"], launch_names(store.names))
        calls = {key: values[is_call] for key, values in calls.items()}
        order = np.argsort(calls["link"], kind="stable")
        links = calls["link"][order]
        at = np.searchsorted(links, self.link)
        is_linked = (at < len(links)) & (self.link != 0)
        is_linked[is_linked] &= links[at[is_linked]] == self.link[is_linked]
        begin, length = np.full(len(self.link), -1, np.int64), np.full(len(self.link), -1, np.int64)
        begin[is_linked] = calls["ts"][order][at[is_linked]]
        length[is_linked] = calls["dur"][order][at[is_linked]]
        return begin, length

    @cached_property
    def launched(self) -> tuple[Ints, Ints, Ints, Ints]:
        """Recorded calls that launched kernels, all [n]: begin and length, and of their kernels the first begin and the
        time of all together [ns]. A graph is one call with many kernels.
        """
        begin, length = self.launches
        rows = self.kernels & (length >= 0)
        calls, first, of_call = np.unique(self.link[rows], return_index=True, return_inverse=True)
        together = np.zeros(len(calls), np.int64)
        np.add.at(together, of_call, self.duration[rows])
        return begin[rows][first], length[rows][first], self.start[rows][first], together

    @property
    def words(self) -> dict[str, object]:
        """How a sentence calls it."""
        whose = f"{self.recorded.role} {self.recorded.rank}" if self.recorded.role else ""
        return {"device": device_words(self.device, whose=whose)}

    def observation(self, value: float, *, is_firing: bool | None = None, **words: object) -> Observation:
        """Return what a rule measured of it over the whole window."""
        return Observation(
            value=value,
            begin=self.begin,
            end=self.end,
            words={**self.words, **words},
            is_firing=is_firing,
            role=self.recorded.role,
            rank=self.recorded.rank,
        )


_READ: WeakKeyDictionary[Evidence, tuple[DeviceWork, ...]] = WeakKeyDictionary()
"""What was read for the rules that look at the same evidence, for as long as it is there."""


def devices(evidence: Evidence) -> tuple[DeviceWork, ...]:
    """Return the work of every device in every file of a capture; it is read with the first rule that asks.

    Files without a clock are left out: rules ask how things lie to each other in time.
    """
    work_of_devices = _READ.get(evidence)
    if work_of_devices is None:
        timed = [recorded for recorded in evidence.recorded if recorded.has_clock]
        work_of_devices = _READ[evidence] = tuple(work for recorded in timed for work in _devices_of(recorded))
    return work_of_devices


def _devices_of(recorded: RecordedTrace) -> Iterator[DeviceWork]:
    store = recorded.store
    streams = [lane for lane in store.lanes if lane.kind == "stream" and lane.events]
    begin, end = looked_at(recorded)
    for device, pid in sorted({(lane.device, lane.pid) for lane in streams}):
        own_streams = [lane for lane in streams if (lane.device, lane.pid) == (device, pid)]
        events = recorded.events(lanes=[lane.id for lane in own_streams], categories=sorted(DEVICE), columns=_COLUMNS)
        if not len(events["ts"]):
            continue
        order = np.argsort(events["ts"], kind="stable")
        stream_of = np.full(max(lane.id for lane in own_streams) + 1, -1, np.int64)
        stream_of[[lane.id for lane in own_streams]] = [lane.stream for lane in own_streams]
        work = DeviceWork(
            recorded=recorded,
            device=device,
            process=own_streams[0].process,
            pid=pid,
            start=events["ts"][order],
            duration=events["dur"][order],
            name=events["name"][order],
            category=events["cat"][order],
            link=events["link"][order],
            outer=events["outer"][order],
            stream=stream_of[events["lane"][order]],
            bytes=events["bytes"][order],
            begin=begin,
            end=end,
        )
        yield replace(work, end=_end_of_work(work))


def _end_of_work(work: DeviceWork) -> int:
    """Return the end of the window, or of the last work that was launched in it, if that is later."""
    called = work.launches[0]
    ends = (work.start + work.duration)[(called >= 0) & (called < work.end)]
    return max(work.end, min(int(ends.max(initial=0)), work.recorded.end))


def looked_at(recorded: RecordedTrace) -> tuple[int, int]:
    """Return from when to when work is looked at, in Unix ns: the steps, else all that was recorded of the program.

    Before the first step and after the last one a recording is switched on and written.
    """
    of_file = steps(recorded.store) or _repeated(recorded)
    first, last = recorded.store.program
    begin = max(recorded.begin, of_file[0].begin if of_file else first)
    end = min(recorded.end, max(step.end for step in of_file) if of_file else last)
    return (begin, end) if begin < end else (recorded.begin, recorded.end)


def at_work(recorded: RecordedTrace) -> tuple[int, int] | None:
    """Return from when to when a program was at work, in Unix ns: its steps, else from the first to the last thing that
    a device did, or that ran on a thread where there is no device. None where neither was recorded: calls of a device's
    interface alone are none.
    """
    if steps(recorded.store) or _repeated(recorded):
        return looked_at(recorded)
    for kind, categories in (("stream", DEVICE), ("thread", _ON_THREADS)):
        lanes = [lane.id for lane in recorded.store.lanes if lane.kind == kind and lane.events]
        events = recorded.events(lanes=lanes, categories=sorted(categories), columns=("ts", "dur"))
        if len(events["ts"]):
            return int(events["ts"].min()), int((events["ts"] + events["dur"]).max())
    return None


def _repeated(recorded: RecordedTrace) -> tuple[Step, ...]:
    """Return the iterations of the devices of a file together, () where steps are marked, although none is whole."""
    store = recorded.store
    if len(store.sql("SELECT 1 AS one FROM ev WHERE cat = ? LIMIT 1", [int(Category.STEP)])["one"]):
        return ()
    lanes_of: dict[tuple[int, int], list[Lane]] = {}
    for lane in store.lanes:
        if lane.kind == "stream" and lane.events:
            lanes_of.setdefault((lane.pid, lane.device), []).append(lane)
    busiest = sorted(lanes_of, key=lambda owner: (-sum(lane.events for lane in lanes_of[owner]), owner))
    return common([found_steps(store, lanes_of[owner]) for owner in busiest])
