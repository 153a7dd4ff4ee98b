"""Imported traces made up by hand: kernels, launches, collectives, counters, at moments that a test can compute by
hand."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from profiling.evidence import Evidence, RecordedTrace
from profiling.trace.category import Category
from profiling.trace.store import Store
from profiling.trace.writer import StoreWriter

MS = 1_000_000
BEGIN = 1_700_000_000 * 1_000_000_000

Event = tuple[float, float, str, Category]  # start and duration in ms, name, category


@dataclass(frozen=True, kw_only=True)
class Trace:
    """`device` and `host` events; the n-th launch of `launches` (start, duration in ms) launched the n-th of `device`.

    `window` is the length of the recording in ms: a range of that length is on the host. `pool` happens on a thread
    that runs no operator; `meta` is what the trace says of itself.
    """

    device: Sequence[Event] = ()
    host: Sequence[Event] = ()
    launches: Sequence[tuple[float, float]] = ()
    samples: dict[str, Sequence[float]] = field(default_factory=dict)
    notes: Sequence[str] = ()
    pool: Sequence[Event] = ()
    meta: dict[str, object] = field(default_factory=dict)
    bytes: int = 0
    streams: tuple[int, int] = (7, 20)  # of what computes, of collectives
    window: float = 1000.0


def recorded(path: Path, trace: Trace, *, rank: int = 0) -> RecordedTrace:
    """Return the trace as an imported file of a policy rank."""
    with StoreWriter(path, source="test") as writer:
        pid = 100 + rank
        thread = writer.lane("thread", process="python", pid=pid, thread="main", tid=1)
        lanes = [writer.lane("stream", process="python", pid=pid, device=rank, stream=one) for one in trace.streams]
        whole = writer.lane("range", process="python", pid=pid, title="recorded")
        writer.add(whole, BEGIN, int(trace.window * MS), writer.name("recorded"), Category.RANGE)
        for number, (start, duration, name, category) in enumerate(trace.device, 1):
            lane = lanes[category == Category.COMMUNICATION]
            at, length = BEGIN + int(start * MS), int(duration * MS)
            writer.add(lane, at, length, writer.name(name), category, link=number, bytes=trace.bytes)
        for number, (start, duration) in enumerate(trace.launches, 1):
            at, length = BEGIN + int(start * MS), int(duration * MS)
            writer.add(thread, at, length, writer.name("cudaLaunchKernel"), Category.RUNTIME, link=number)
        for start, duration, name, category in trace.host:
            writer.add(thread, BEGIN + int(start * MS), int(duration * MS), writer.name(name), category)
        for name, values in trace.samples.items():
            series = writer.counter(name, "", device=rank, process="python")
            for i, value in enumerate(values):
                writer.count(series, BEGIN + i * MS, value)
        for start, duration, name, category in trace.pool:
            pool = writer.lane("thread", process="python", pid=pid, thread="pool", tid=2)
            writer.add(pool, BEGIN + int(start * MS), int(duration * MS), writer.name(name), category)
        for key, value in trace.meta.items():
            writer.meta(key, value)
        for text in trace.notes:
            writer.note("warning", text)
        writer.finish()
    return RecordedTrace(store=Store(path), role="policy", rank=rank)


Make = Callable[..., Evidence]


def maker(folder: Path) -> Make:
    """Return a function that turns traces, one a rank, into evidence."""
    count = iter(range(1000))

    def make(*traces: Trace) -> Evidence:
        files = (recorded(folder / f"{next(count)}.duckdb", trace, rank=i) for i, trace in enumerate(traces))
        return Evidence(recorded=tuple(files))

    return make
