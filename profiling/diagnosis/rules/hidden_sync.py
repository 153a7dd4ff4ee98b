"""The CPU waits for the device inside the step, so that the device then waits for the CPU."""

import re
from collections.abc import Iterator

import numpy as np

from profiling.analysis.intervals import Bools, Intervals, covered, gaps, intersection, total, union
from profiling.diagnosis.device_work import DeviceWork, devices
from profiling.diagnosis.evaluators import evaluate_worst
from profiling.diagnosis.finding import InsufficientData, Observation, Rule
from profiling.diagnosis.host_work import marked_steps
from profiling.evidence import Evidence, Ints
from profiling.trace.category import Category
from profiling.trace.names import numbers_of
from profiling.trace.store import Columns

_WAITS = re.compile(r"Synchronize|^(?:cuda|cu|hip)Memcpy(?!\w*Async)|^hipMemcpyWithStream", re.I)
_LEAST = 1_000_000  # ns
_UNLINKED = "No file tells which thread launched which kernel. Record with CUDA (or HIP) calls of the CPU."


def _observations(evidence: Evidence) -> Iterator[Observation]:
    for work in devices(evidence):
        begin, _length = work.launches
        if not (begin >= 0).any():
            continue
        calls = _calls(work)
        waits, begins, ends = _costs(work, calls)
        late = _late(work)
        ends = _cut(late, begins, ends, calls["dur"][waits])
        cost = covered(begins, ends, late)
        whole = intersection(union(begins, ends), late)
        at = int(waits[int(cost.argmax())]) if cost.any() else -1
        share = total(whole) / work.window
        words = {
            **work.words,
            "calls": int((cost > 0).sum()),
            "name": work.recorded.store.names[int(calls["name"][at])][:80] if at >= 0 else "—",
        }
        yield Observation(
            value=share,
            begin=int(calls["ts"][at]) if at >= 0 else work.begin,
            end=int(calls["ts"][at] + calls["dur"][at]) if at >= 0 else work.end,
            words=words,
            is_firing=share > PLUGIN.watch and total(whole) >= _LEAST,
            role=work.recorded.role,
            rank=work.recorded.rank,
        )


def _calls(work: DeviceWork) -> Columns:
    """Return the calls of the device's interface on the threads of its process, by thread and begin."""
    threads = [lane.id for lane in work.recorded.store.lanes if lane.kind == "thread" and lane.pid == work.pid]
    return work.recorded.events(
        lanes=threads, categories=[Category.RUNTIME, Category.SYNC], columns=("lane", "ts", "dur", "name", "link")
    )


def _late(work: DeviceWork) -> Intervals:
    """Return when the device was idle and what it did next had not been launched: elsewhere no thread keeps it."""
    idle = gaps(work.busy, work.begin, work.end)
    begin, length = work.launches
    at = np.searchsorted(work.start, idle.end)
    is_queued = at < len(work.start)
    row = at[is_queued]
    begun = work.start[row] == idle.end[is_queued]
    is_queued[is_queued] = begun & (begin[row] >= 0) & (begin[row] + length[row] <= idle.begin[is_queued])
    return Intervals(idle.begin[~is_queued], idle.end[~is_queued])


def _cut(moments: Intervals, begins: Ints, ends: Ints, most: Ints) -> Ints:
    """Return the ends [n] of intervals cut so that each holds at most so much of some moments. [ns]"""
    if not len(moments):
        return np.maximum(begins, ends)
    until = np.cumsum(moments.lengths)
    wanted = covered(np.full(len(begins), moments.begin[0]), np.maximum(begins, moments.begin[0]), moments) + most
    at = np.minimum(np.searchsorted(until, wanted), len(until) - 1)
    return np.asarray(np.minimum(ends, np.where(wanted < until[-1], moments.end[at] - (until[at] - wanted), ends)))


def _costs(work: DeviceWork, calls: Columns) -> tuple[Ints, Ints, Ints]:
    """Return the rows of calls that wait, and from when to when each may have kept the device idle, all [w]: from the
    end of the device's last work before the call returned to the begin of the next work that its thread launched.
    """
    is_wait = np.isin(calls["name"], numbers_of(work.recorded.store.names, _WAITS))
    is_wait &= ~_is_closing(work, calls, is_wait)
    done = np.maximum.accumulate(work.start + work.duration)
    parts = [np.empty((3, 0), np.int64)]
    for lane in np.unique(calls["lane"][is_wait]).tolist():
        launched, starts = _launches(work, calls, lane)
        rows = np.flatnonzero(is_wait & (calls["lane"] == lane))
        until = calls["ts"][rows] + calls["dur"][rows]
        at = np.searchsorted(launched, until, side="left")
        before = np.searchsorted(work.start, until, side="left") - 1
        keep = (at < len(starts)) & (before >= 0)
        rows, until, at, before = rows[keep], until[keep], at[keep], before[keep]
        begins, ends = np.minimum(done[before], until), starts[at]
        parts.append(np.stack([rows, begins, ends])[:, ends > begins])
    rows, begins, ends = np.concatenate(parts, axis=1)
    return rows, begins, ends


def _launches(work: DeviceWork, calls: Columns, lane: int) -> tuple[Ints, Ints]:
    """Return when a thread launched work of the device, ascending [n], and when the first of it or of later began."""
    own = np.flatnonzero((calls["lane"] == lane) & (calls["link"] > 0))
    order = np.argsort(calls["link"][own], kind="stable")
    links = calls["link"][own][order]
    at = np.searchsorted(links, work.link)
    is_own = (at < len(links)) & (work.link > 0)
    is_own[is_own] &= links[at[is_own]] == work.link[is_own]
    launched = calls["ts"][own][order][at[is_own]]
    starts = work.start[is_own]
    order = np.argsort(launched, kind="stable")
    return launched[order], np.minimum.accumulate(starts[order][::-1])[::-1]


def _is_closing(work: DeviceWork, calls: Columns, is_wait: Bools) -> Bools:
    """Return which calls are the recording's own end [n]: after the last step, the last of their name on a thread."""
    ends = marked_steps(work.recorded)[1]
    closing = np.zeros(len(is_wait), np.bool_)
    if not len(ends):
        return closing
    after = is_wait & (calls["ts"] >= ends.max())
    last = {(lane, name): row for row, (lane, name) in enumerate(zip(calls["lane"], calls["name"], strict=True))}
    closing[[row for row in last.values() if after[row]]] = True
    return closing


def _evaluate(evidence: Evidence) -> Observation | InsufficientData:
    nothing = InsufficientData(what="device_trace")
    unlinked = InsufficientData(what="device_trace", text=_UNLINKED)
    return evaluate_worst(_observations, missing=unlinked if devices(evidence) else nothing)(evidence)


PLUGIN = Rule(
    title="Hidden synchronisation",
    question="why",
    definition="Time in which the device is idle because a thread waited for it (Synchronize, copies that block): from "
    "its last work before the call returned to the next work that this thread launched, but no longer than the wait, "
    "divided by the recorded time. A wait while the device works, or while its next work is launched already, costs "
    "nothing.",
    unit="share",
    watch=0.02,
    bad=0.15,
    source="the rules cuda-sync-api and cuda-sync-memcpy of nsys; 2 % and 1 ms from lists of root causes",
    needs=("device_trace",),
    fires="{device} is idle for {value} of the time because a thread waited for it and launched nothing meanwhile: "
    "{calls} calls, the worst is {name}.",
    clear="{device} is idle for {value} of the time because a thread waited for it.",
    advice="Take .item(), .cpu() and prints of tensors out of the step; torch.cuda.set_sync_debug_mode finds them.",
    evaluate=_evaluate,
)
