"""The line of code beside an event: frames of Python that were open when it was called, or launched."""

from profiling.trace.category import Category
from profiling.trace.frames import BUILT_IN, OWN, package_of
from profiling.trace.store import EventDetail, Store, StoredEvent


def stack_of(store: Store, detail: EventDetail) -> list[StoredEvent]:
    """Return the frames that were open on the thread when an event began, the outermost first; [] without any.

    For work of a device: when the call was made that launched it.
    """
    event = detail.event
    call = _call_of(store, detail)
    if call is None:
        return []
    own = store.lanes[call.lane]
    lanes = [lane.id for lane in store.lanes if (lane.process, lane.pid, lane.tid) == (own.process, own.pid, own.tid)]
    rows = store.sql(
        "SELECT rowid AS id FROM ev WHERE cat = ? AND list_contains(?, lane) AND ts <= ? AND ts + dur > ? "
        "ORDER BY ts, dur DESC LIMIT 256",
        [int(Category.PYTHON), lanes, call.ts, call.ts],
    )
    return [store.event(number) for number in rows["id"].tolist() if number != event.id]


def source_of(stack: list[StoredEvent]) -> StoredEvent | None:
    """Return the frame of a stack that people wrote: the innermost of no framework, else the innermost with a file."""
    with_file = [frame for frame in stack if package_of(frame.name) != BUILT_IN and "(" in frame.name]
    own = [frame for frame in with_file if package_of(frame.name) == OWN]
    chosen = own or with_file
    return chosen[-1] if chosen else None


def _call_of(store: Store, detail: EventDetail) -> StoredEvent | None:
    if store.lanes[detail.event.lane].kind == "thread":
        return detail.event
    calls = [one for one in detail.linked if store.lanes[one.lane].kind == "thread"]
    return min(calls, key=lambda one: one.ts, default=None)
