"""The critical path of a window: the chain of work that its last event waited for, over launches, streams and ranks.

As Holistic Trace Analysis has it, without a graph: the longest path to an event goes through whichever of the things
that it waited for came last, so that it is found backwards from the last event, one step at a time. An event of a
stream waits for the one before on that stream and for the call that launched it, or, where it was launched long before
and the stream was idle, for the work of another stream that ended last; a collective for the last rank to enter it; a
synchronising call for the last work of its device that ended while it lasted; all else on a thread for what ran before
on it, or, where nothing did, for the thread of its process that worked last. Every moment of the window lies in one
segment: work, or a wait of which the trace tells no work.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from profiling.analysis.communication import plain_name
from profiling.analysis.intervals import Ints
from profiling.analysis.too_many import TooManyEvents
from profiling.analysis.work import Events, WorkerEvents, read
from profiling.trace.category import DEVICE, Category
from profiling.trace.store import Store

What = Literal["device", "host", "launch", "gap"]

MOST_EVENTS = 1_000_000
MOST_SEGMENTS = 20_000
MOST_TURNS = 100
"""The walk goes no further back after so many turns without progress, which no recording that was seen takes."""
_CALLS = (Category.RUNTIME, Category.SYNC)
_ON_HOST = (Category.OPERATOR, Category.RUNTIME, Category.SYNC, Category.COMMUNICATION, Category.RANGE, Category.BATCH)


@dataclass(frozen=True, slots=True, kw_only=True)
class PathSegment:
    """A stretch of the path [begin, end) in Unix ns on one worker.

    device: work of a stream; host: of a thread; launch: from a call to the begin of what it launched, while nothing
    else kept the stream busy; gap: of which the trace tells nothing. `lane` -1 for a gap.
    """

    what: What
    worker: int
    lane: int
    name: str
    category: int
    begin: int
    end: int


def read_workers(stores: Sequence[Store], *, begin: int, end: int) -> list[WorkerEvents]:
    """Return the events of a window of each store. Raises: TooManyEvents."""
    count = sum(
        int(store.sql("SELECT count(*) AS n FROM ev WHERE ts < ? AND ts + dur > ?", [end, begin])["n"][0])
        for store in stores
    )
    if count > MOST_EVENTS:
        raise TooManyEvents(
            f"The window holds {count:,} events; a critical path is looked for among {MOST_EVENTS:,} at most. "
            "Choose a shorter one: a step, say."
        )
    return [read(store, begin=begin, end=end) for store in stores]


def critical_path(works: Sequence[WorkerEvents], *, begin: int, end: int) -> tuple[PathSegment, ...]:
    """Return the segments of the path through [begin, end), first to last; () where nothing happens there.

    It ends with the last event of a device, or of a thread where no device was recorded. Raises: TooManyEvents.
    """
    workers = [_Worker(work, begin, end) for work in works]
    last = max((one for one in workers if len(one.last)), key=lambda one: int(one.last.end.max()), default=None)
    if last is None:
        return ()
    return _Walk(workers, begin).back(workers.index(last), min(int(last.last.end.max()), end))


class _Lane:
    """The outermost events of one lane, in order; none overlaps the next."""

    def __init__(self, events: Events) -> None:
        until = np.maximum.accumulate(events.end) if len(events) else events.end
        outer = np.ones(len(events), np.bool_)
        outer[1:] = events.end[1:] > until[:-1]
        self.events = events.take(outer)
        self.begin = self.events.ts
        self.end = self.events.end

    def before(self, moment: int) -> int:
        """Return the last event that begins before a moment, -1 for none."""
        return int(np.searchsorted(self.begin, moment, side="left")) - 1


class _Worker:
    """One worker's streams and threads, and how they are linked."""

    def __init__(self, work: WorkerEvents, begin: int, end: int) -> None:
        self.work = work
        inside = (work.device.ts < end) & (work.device.end > begin)
        # what has no length, as clocks of whole microseconds tell of short work, is never under way
        device = work.device.take(inside & (work.device.end > work.device.ts))
        host = work.host.of(*_ON_HOST)
        host = host.take((host.ts < end) & (host.end > begin))
        self.last = device if len(device) else host
        self.streams = {lane: _Lane(device.on([lane])) for lane in np.unique(device.lane).tolist()}
        calls = host.of(*_CALLS)
        has_link = calls.link != 0
        self.call_of = {
            link: (lane, ts, stop, work.name(name), category)
            for link, lane, ts, stop, name, category in zip(
                *(
                    column[has_link].tolist()
                    for column in (calls.link, calls.lane, calls.ts, calls.end, calls.name, calls.cat)
                ),
                strict=True,
            )
        }
        launching = np.unique(calls.lane).tolist() if len(device) else np.unique(host.lane).tolist()
        work_of_host = host.of(Category.OPERATOR, *_CALLS, Category.COMMUNICATION)
        self.threads = {lane: _Lane(work_of_host.on([lane])) for lane in launching}
        waits = calls.of(Category.SYNC)
        self.waits = {lane: _Lane(waits.on([lane])) for lane in launching}
        self.ends = np.sort(device.end)
        self.by_end = device.take(np.argsort(device.end, kind="stable"))
        talks = device.of(Category.COMMUNICATION) if len(device) else host.of(Category.COMMUNICATION)
        self.collectives: dict[str, Ints] = {}
        names = np.array([plain_name(work.name(number)) for number in talks.name.tolist()], object)
        for name in sorted(set(names.tolist())):
            self.collectives[name] = np.sort(talks.ts[names == name])


class _Walk:
    def __init__(self, workers: Sequence[_Worker], begin: int) -> None:
        self._workers = workers
        self._begin = begin
        self._found: list[PathSegment] = []

    def back(self, worker: int, moment: int) -> tuple[PathSegment, ...]:
        """Walk from a moment back to the begin of the window."""
        own = self._workers[worker]
        stream = int(own.by_end.lane[-1]) if own.streams else None
        thread: int | None = None
        since, turns = moment, 0
        while moment > self._begin and len(self._found) < MOST_SEGMENTS and turns < MOST_TURNS:
            if stream is not None:
                worker, moment, stream, thread = self._device(worker, stream, moment)
            else:
                moment, stream, thread = self._host(worker, thread, moment)
            since, turns = (moment, 0) if moment < since else (since, turns + 1)
        if moment > self._begin and len(self._found) >= MOST_SEGMENTS:  # its share of devices would be of the end alone
            raise TooManyEvents(
                f"The critical path of this window has more than {MOST_SEGMENTS:,} segments, which is the most. "
                "Choose a shorter one: a step, say."
            )
        return tuple(reversed(self._found))

    def _add(self, what: What, worker: int, lane: int, name: str, category: int, begin: int, end: int) -> int:
        """Add a segment, cut off at the window's begin; returns where it begins."""
        begin = max(begin, self._begin)
        if end > begin:
            self._found.append(
                PathSegment(what=what, worker=worker, lane=lane, name=name, category=category, begin=begin, end=end)
            )
        return min(begin, end)

    def _device(self, worker: int, stream: int, moment: int) -> tuple[int, int, int | None, int | None]:
        """Take the work of a stream that was under way just before a moment, and go to what it waited for."""
        own = self._workers[worker]
        lane = own.streams[stream]
        at = lane.before(moment)
        if at < 0 or lane.end[at] < moment:
            return worker, moment, None, None
        row = lane.events.take(np.array([at]))
        name, category = own.work.name(int(row.name[0])), int(row.cat[0])
        begin = int(lane.begin[at])
        latest = self._latest_to_enter(worker, name, begin) if category == Category.COMMUNICATION else None
        if latest is not None and begin < latest[1] < moment:
            other, entered = latest
            theirs = self._workers[other]
            at_other = next((number for number, one in theirs.streams.items() if entered in one.begin), None)
            if at_other is not None:
                moment = self._add("device", worker, stream, name, category, entered, moment)
                return self._cause(other, at_other, moment, theirs.streams[at_other].before(moment + 1))
        moment = self._add("device", worker, stream, name, category, begin, moment)
        return self._cause(worker, stream, moment, at)

    def _cause(self, worker: int, stream: int, begin: int, at: int) -> tuple[int, int, int | None, int | None]:
        """Return where the path goes on from the begin of the work number `at` of a stream."""
        own = self._workers[worker]
        lane = own.streams[stream]
        call = own.call_of.get(int(lane.events.link[at]))
        before = int(lane.end[at - 1]) if at > 0 else self._begin
        if call is None or (at > 0 and call[2] <= before):
            if at == 0:
                return worker, begin, None, call[0] if call else None
            ended = int(np.searchsorted(own.ends, begin, side="right")) - 1
            if call is not None and own.ends[ended] > before:  # it was queued, and another stream worked until then
                stream, before = int(own.by_end.lane[ended]), int(own.ends[ended])
            return worker, self._add("gap", worker, -1, "", 0, before, begin), stream, None
        thread, called, until, name, category = call
        moment = self._add("launch", worker, thread, name, category, min(until, begin), begin)
        moment = self._add("host", worker, thread, name, category, called, moment)
        return worker, moment, None, thread

    def _latest_to_enter(self, worker: int, name: str, begin: int) -> tuple[int, int] | None:
        """Return which worker entered a collective last, and when; None where nothing tells which one it was there."""
        key = plain_name(name)
        own = self._workers[worker].collectives.get(key)
        if own is None or len(self._workers) < 2:
            return None
        place = int(np.searchsorted(own, begin))
        starts = [
            (int(other.collectives[key][place]), number)
            for number, other in enumerate(self._workers)
            if len(other.collectives.get(key, ())) == len(own)
        ]
        moment, number = max(starts)
        return number, moment

    def _host(self, worker: int, thread: int | None, moment: int) -> tuple[int, int | None, int | None]:
        """Take what a thread did just before a moment, and go to what it waited for."""
        own = self._workers[worker]
        if thread is None or thread not in own.threads:
            thread = self._last_thread(own, moment)
        if thread is None:
            return self._add("gap", worker, -1, "", 0, self._begin, moment), None, None
        wait = own.waits[thread]
        at = wait.before(moment)
        if at >= 0 and int(wait.end[at]) >= moment:  # the call ends here: what has it waited for?
            ended = int(np.searchsorted(own.ends, min(moment, int(wait.end[at])), side="right")) - 1
            if ended >= 0 and int(own.ends[ended]) > int(wait.begin[at]):
                name = own.work.name(int(wait.events.name[at]))
                stop = int(own.ends[ended])
                moment = self._add("host", worker, thread, name, int(Category.SYNC), stop, moment)
                return moment, int(own.by_end.lane[ended]), None
        lane = own.threads[thread]
        row = lane.before(moment)
        until = int(lane.end[row]) if row >= 0 else -1
        if until < moment:
            return self._idle(worker, thread, until, moment)
        name, category = own.work.name(int(lane.events.name[row])), int(lane.events.cat[row])
        inner = int(wait.end[at]) if at >= 0 else -1
        begin = max(int(lane.begin[row]), inner if inner < moment else -1)
        return self._add("host", worker, thread, name, category, begin, moment), None, thread

    def _idle(self, worker: int, thread: int, until: int, moment: int) -> tuple[int, int | None, int | None]:
        """The thread did nothing that was recorded: go on with the thread that worked last."""
        own = self._workers[worker]
        last = self._last_thread(own, moment)
        if last is not None and last != thread:
            lane = own.threads[last]
            ended = min(int(lane.end[lane.before(moment)]), moment)
            if ended > until:
                return self._add("gap", worker, -1, "", 0, ended, moment), None, last
        return self._add("gap", worker, -1, "", 0, max(until, self._begin), moment), None, thread

    def _last_thread(self, own: _Worker, moment: int) -> int | None:
        """Return the thread whose work before a moment ended last."""
        best: tuple[int, int] | None = None
        for number, lane in own.threads.items():
            at = lane.before(moment)
            if at >= 0 and (best is None or min(int(lane.end[at]), moment) > best[0]):
                best = (min(int(lane.end[at]), moment), number)
        return best[1] if best else None


def device_share(segments: Sequence[PathSegment]) -> float:
    """Return how much of a path is work of devices, of 1; 0 for an empty one."""
    whole = sum(one.end - one.begin for one in segments)
    on_device = sum(one.end - one.begin for one in segments if one.what == "device" and one.category in DEVICE)
    return on_device / whole if whole else 0.0
