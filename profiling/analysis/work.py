"""Events of one worker as the analysis sees them: columns of a store, with names and lanes at hand."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING

import numpy as np

from profiling.analysis.frames import NONE, Frames, frames_in
from profiling.analysis.intervals import EMPTY, Bools, Intervals, Ints, difference, interval, joined, union
from profiling.trace.category import DEVICE, Category
from profiling.trace.launches import launch_names
from profiling.trace.names import numbers_of
from profiling.trace.scheduling import ON_CPU, SCHEDULING

if TYPE_CHECKING:
    from profiling.trace.store import Lane, Store

LONG = 1_000_000
"""Shorter gaps are not looked into one by one. [ns]"""

_MOST_TRIED = 4  # threads that are asked for frames
_COLUMNS = ("lane", "ts", "dur", "name", "cat", "link", "outer", "bytes", "info")
_READ = tuple(category for category in Category if category not in (Category.PYTHON, Category.NATIVE, Category.OTHER))
"""Frames are left out: they are many, and those in long gaps are read when they are asked for."""
AWAITS = re.compile(r"(?:await|block|wait)_?(?:host_?)?(?:until_?)?(?:ready|done)", re.I)
"""What ranges, operators and frames are called in which the CPU waits for the device: `block_until_ready` of JAX,
`BlockHostUntilReady`, `AwaitReady` of XLA. Frames of these names are read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Events:
    """Columns [n], sorted by lane and start, the longer first. `ts` in Unix ns, `dur` in ns."""

    lane: Ints
    ts: Ints
    dur: Ints
    name: Ints
    cat: Ints
    link: Ints
    outer: Ints
    bytes: Ints
    info: Ints

    def __len__(self) -> int:
        return len(self.ts)

    @property
    def end(self) -> Ints:
        """When each one ends [n], in Unix ns."""
        return self.ts + self.dur

    def take(self, rows: Bools | Ints) -> "Events":
        """Return the chosen rows."""
        return Events(**{name: getattr(self, name)[rows] for name in self.__slots__})

    def of(self, *categories: Category) -> "Events":
        """Return those of the categories."""
        return self.take(np.isin(self.cat, [int(one) for one in categories]))

    def on(self, lanes: Iterable[int]) -> "Events":
        """Return those on the lanes."""
        return self.take(np.isin(self.lane, list(lanes)))

    @property
    def union(self) -> Intervals:
        """The moments at which at least one is under way."""
        return union(self.ts, self.end)


@dataclass(frozen=True, kw_only=True)
class WorkerEvents:
    """What was recorded of one worker. `begin` and `end` (Unix ns): nothing is known of it before and after."""

    events: Events
    names: Sequence[str]
    lanes: Mapping[int, "Lane"]
    begin: int
    end: int
    role: str = ""
    rank: int = -1
    has_stacks: bool = False
    """Frames of Python were recorded."""
    frames: Callable[["Lane", Intervals], Frames] | None = None
    """Reads the frames of a thread in some gaps, as long as the store is open."""
    samples: Callable[["Lane", Intervals], Frames] | None = None
    """Reads what samples of the CPU saw of a thread in some gaps; None where there are none."""

    @cached_property
    def device(self) -> Events:
        """What ran on devices."""
        streams = [lane.id for lane in self.lanes.values() if lane.kind == "stream"]
        return self.events.on(streams).of(*DEVICE)

    @cached_property
    def host(self) -> Events:
        """What ran on threads."""
        lanes = [lane for lane in self.lanes.values() if lane.kind == "thread" and lane.title != SCHEDULING]
        return self.events.on([lane.id for lane in lanes])

    @cached_property
    def calls(self) -> Events:
        """Calls of the device's interface on threads that may launch work, copies that wait for their end too."""
        host = self.host
        is_copy = (host.cat == Category.SYNC) & np.isin(host.name, launch_names(self.names))
        return host.take((host.cat == Category.RUNTIME) | is_copy)

    @property
    def has_device(self) -> bool:
        """Return True if work of a device was recorded; else all work is that of the CPU."""
        return len(self.device) > 0

    @property
    def tells_work(self) -> bool:
        """Return True if it says when the worker computed or communicated: kernels, operators or collectives.

        A recording with nsys on CPU holds ranges alone: the worker is in a phase, and what it does in it is not known.
        One that holds launches, but nothing of the device, does not know either what operators did.
        """
        return self.has_device or (not self._launches_unseen and (len(self.operators) > 0 or len(self.collectives) > 0))

    @cached_property
    def _launches_unseen(self) -> bool:
        return len(self.called(_LAUNCHES, self.host.of(Category.RUNTIME))) > 0

    @cached_property
    def collectives(self) -> Events:
        """Collectives: on streams where there are devices, else those that the CPU carries out itself."""
        return (self.device if self.has_device else self.host).of(Category.COMMUNICATION)

    @cached_property
    def compute(self) -> Intervals:
        """When it computes: any kernel, or, without a device, any operator that is not part of a collective."""
        if self.has_device:
            return self.device.of(Category.KERNEL).union
        operators = self.operators
        outside = [
            _without(operators.on([lane]), self.collectives.on([lane])) for lane in np.unique(operators.lane).tolist()
        ]
        return joined(*outside)

    @cached_property
    def operators(self) -> Events:
        """Operators, without those that do nothing but carry out or await a collective."""
        events = self.host.of(Category.OPERATOR)
        waits = [i for i, name in enumerate(self.names) if name.startswith(_OF_COLLECTIVES)]
        return events.take(~np.isin(events.name, waits)) if waits else events

    @cached_property
    def busy(self) -> Intervals:
        """When its device did anything, or its CPU, where no device was recorded."""
        if self.has_device:
            return self.device.union
        return joined(self.compute, self.collectives.union)

    @cached_property
    def main_lane(self) -> int:
        """The thread that leads, -1 for none: that of the steps, else of most calls of the device, else operators."""
        for categories in ((Category.STEP,), (Category.RUNTIME,), (Category.OPERATOR, Category.RANGE)):
            events = self.host.of(*categories)
            if len(events):
                lanes, counts = np.unique(events.lane, return_counts=True)
                return int(lanes[counts.argmax()])
        return -1

    @cached_property
    def leading(self) -> Events:
        """What ran on threads that launch work of the device, and on the one that leads; on all without a device."""
        if not self.has_device:
            return self.host
        calls = self.calls
        launching = calls.lane[np.isin(calls.link, self.device.link) & (calls.link > 0)]
        return self.host.on({*np.unique(launching).tolist(), self.main_lane})

    @cached_property
    def long_frames(self) -> Frames:
        """The program's own functions that the leading thread was in during idle gaps of 1 ms or more.

        Autograd's thread, which launches most of a backward pass, has no frames: then it is the next one that has.
        """
        if self.frames is None or not self.has_stacks:
            return NONE
        gaps = self._long_gaps
        lanes, counts = np.unique(self.leading.lane, return_counts=True)
        others = [lane for lane in lanes[np.argsort(-counts, kind="stable")].tolist() if lane != self.main_lane]
        for lane in [self.main_lane, *others][:_MOST_TRIED]:
            if lane in self.lanes and len((frames := self.frames(self.lanes[lane], gaps)).begin):
                return frames
        return NONE

    @property
    def _long_gaps(self) -> Intervals:
        idle = difference(interval(self.begin, self.end), self.busy)
        keep = idle.lengths >= LONG
        return Intervals(idle.begin[keep], idle.end[keep])

    @cached_property
    def _working(self) -> list["Lane"]:
        """Threads that launch work of the device, the leading one first; without a device that one alone."""
        lanes = np.unique(self.leading.lane).tolist() if self.has_device else []
        order = [self.main_lane, *(lane for lane in lanes if lane != self.main_lane)]
        return [self.lanes[lane] for lane in order if lane in self.lanes]

    @cached_property
    def long_samples(self) -> Frames:
        """The functions in which samples saw threads that launch work during idle gaps of 1 ms or more."""
        if self.samples is None:
            return NONE
        gaps = self._long_gaps
        seen = [self.samples(lane, gaps) for lane in self._working[:_MOST_TRIED]]
        return Frames(
            begin=np.concatenate([NONE.begin, *(one.begin for one in seen)]),
            end=np.concatenate([NONE.end, *(one.end for one in seen)]),
            name=[name for one in seen for name in one.name],
            gap=np.concatenate([NONE.gap, *(one.gap for one in seen)]),
        )

    @cached_property
    def scheduled(self) -> tuple[Intervals, Intervals]:
        """When any thread that launches work was on a CPU, and when any was not, where scheduling was recorded."""
        threads = {(lane.pid, lane.tid) for lane in self._working}
        events = self.events.of(Category.SCHEDULING).on(
            [lane.id for lane in self.lanes.values() if (lane.pid, lane.tid) in threads]
        )
        is_on = np.isin(events.name, [i for i, name in enumerate(self.names) if name == ON_CPU])
        return events.take(is_on).union, events.take(~is_on).union

    def name(self, number: int) -> str:
        """Return a name by its number."""
        return self.names[number]

    def called(self, pattern: re.Pattern[str], events: Events) -> Events:
        """Return those of its events in whose names the pattern is found."""
        return events.take(np.isin(events.name, numbers_of(self.names, pattern)))


_LAUNCHES = re.compile(r"Launch(?:Cooperative)?Kernel|GraphLaunch|ModuleLaunch")
_NUMBERED = re.compile(r", (?:op_id|seq) = \d+(?:, (?:op_id|seq|sizes|input_op_ids) = .*)?$")
_OF_DLPROF = re.compile(r"\{'mod': '(?P<module>[\w.]{1,200})', 'op': '(?P<function>\w{1,100})', 'args': ")
_OF_HCCL = re.compile(r"(hcom_[A-Za-z]{1,60})_(?:_\d{1,20}){3}$")
_OF_COLLECTIVES = ("c10d::", "record_param_comms", "gloo:", "mpi:")


def _without(events: Events, others: Events) -> Intervals:
    return difference(events.union, others.union) if len(events) else EMPTY


def plain_names(names: Sequence[str]) -> tuple[list[str], Ints]:
    """Return names without what differs from call to call, and the number among these of each given name [n].

    torch's NVTX ranges are called "aten::mm, op_id = 12, seq = 7", those of DLProf and PyProf by all arguments,
    collectives of Ascend "hcom_allReduce__210_0_1" by group and count: every call would be an operator of its own.
    """
    numbers: dict[str, int] = {}
    plain = [numbers.setdefault(_plain(name), len(numbers)) for name in names]
    return list(numbers), np.array(plain, np.int64)


def _plain(name: str) -> str:
    if match := _OF_DLPROF.match(name):
        return f"{match['module']}.{match['function']}"
    match = _OF_HCCL.match(name)
    return match[1] if match else _NUMBERED.sub("", name)


def read(
    store: "Store", *, role: str = "", rank: int = -1, begin: int | None = None, end: int | None = None
) -> WorkerEvents:
    """Return the events of a store that touch [begin, end), all of them without a window."""
    columns = store.events(begin=begin, end=end, categories=[int(one) for one in _READ], columns=_COLUMNS)
    whole = {name: values.astype(np.int64, copy=False) for name, values in columns.items()}
    awaits = numbers_of(store.names, AWAITS)
    if awaits:
        frames = store.sql(
            "SELECT * FROM ev WHERE cat = ? AND list_contains(?, name) AND ts < ? AND ts + dur > ?",
            [int(Category.PYTHON), awaits, store.end + 1 if end is None else end, -1 if begin is None else begin],
        )
        whole = {name: np.concatenate([values, frames[name]], dtype=np.int64) for name, values in whole.items()}
        order = np.lexsort((-whole["dur"], whole["ts"], whole["lane"]))
        whole = {name: values[order] for name, values in whole.items()}
    names, plain = plain_names(store.names)
    whole["name"] = plain[whole["name"]]
    first, last = store.program
    return WorkerEvents(
        events=Events(**whole),
        names=names,
        lanes={lane.id: lane for lane in store.lanes},
        begin=first,
        end=last,
        role=role,
        rank=rank,
        has_stacks=_has(store, Category.PYTHON),
        frames=partial(frames_in, store),
        samples=partial(frames_in, store, category=Category.NATIVE, name_of=str)
        if _has(store, Category.NATIVE)
        else None,
    )


def _has(store: "Store", category: Category) -> bool:
    rows = store.sql("SELECT 1 AS one FROM ev WHERE cat = ? LIMIT 1", [int(category)])
    return len(rows["one"]) > 0
