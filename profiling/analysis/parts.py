"""Files that each hold a part of what one process did, as tables of rocprofv3 do: calls in one, kernels in another.

A call and what it launched have one correlation, so parts are joined before anybody asks what launched a kernel. Files
whose store does not say PART_OF are whole.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from profiling.analysis.intervals import Ints
from profiling.evidence import RecordedTrace
from profiling.trace.formats.rocm import CORRELATIONS, PART_OF, link_of
from profiling.trace.lanes import TooMuch
from profiling.trace.store import Store, StoredEvent
from profiling.trace.writer import StoreWriter

_MOST = 5_000_000
"""Events of parts that are joined: a second for each million. Beyond, each part stays a file of its own."""
_MOST_LINKED = 16


@contextmanager
def whole_processes(recorded: Sequence[RecordedTrace], *, folder: Path) -> Iterator[list[RecordedTrace]]:
    """Lend the files with the parts of each process as one, which stands in `folder` until then."""
    parts: dict[object, list[RecordedTrace]] = {}
    for at, one in enumerate(recorded):
        key = (one.role, one.rank, one.store.meta[PART_OF]) if is_part(one.store) and one.has_clock else at
        parts.setdefault(key, []).append(one)
    with ExitStack() as stack:
        whole = []
        for number, group in enumerate(parts.values()):
            if len(group) == 1 or sum(one.store.facts.events for one in group) > _MOST:
                whole += group
                continue
            place = Path(stack.enter_context(TemporaryDirectory(prefix="parts-", dir=folder)))
            path = place / f"{number}.store"
            try:
                _join([one.store for one in group], path)
            except TooMuch:  # together they have more threads and streams than a store takes
                whole += group
                continue
            store = stack.enter_context(Store(path))
            whole.append(RecordedTrace(store=store, role=group[0].role, rank=group[0].rank))
        yield whole


def is_part(store: Store) -> bool:
    """Return True if a store may hold one side of launches alone."""
    return PART_OF in store.meta


def partners(store: Store, event: StoredEvent, other: Store) -> list[StoredEvent]:
    """Return what an event launched, or was launched by, in another part of its process; [] where `other` is none."""
    if not (is_part(store) and is_part(other)) or store.meta[PART_OF] != other.meta[PART_OF] or not event.link:
        return []
    is_work = store.lanes[event.lane].kind == "stream"
    rows = other.sql(
        'SELECT rowid AS id FROM ev WHERE "link" % ? = ? AND "link" != 0 ORDER BY ts LIMIT ?',
        [CORRELATIONS, event.link % CORRELATIONS, _MOST_LINKED],
    )
    events = map(other.event, rows["id"].tolist())
    return [one for one in events if (other.lanes[one.lane].kind == "stream") != is_work]


def _join(stores: Sequence[Store], path: Path) -> None:
    """Write what the stores hold into one, where a thread is one lane whichever of them it is in."""
    pids = {lane.pid for store in stores for lane in store.lanes if lane.pid >= 0}
    only = next(iter(pids)) if len(pids) == 1 else -1  # tables of kernels do not tell theirs
    with StoreWriter(path, source=str(stores[0].meta["source"])) as writer:
        for store in stores:
            _copy(store, writer, untold=only)
            for note in store.notes:
                writer.note(note.severity, note.text)  # type: ignore[arg-type]  # one of those that a writer took
            for key, value in store.meta.items():
                writer.meta(key, value)
        writer.finish()


def _copy(store: Store, writer: StoreWriter, *, untold: int) -> None:
    """Add the events of a store; `untold` is the process of those that tell none."""
    names = np.array([writer.name(text) for text in store.names] or [0], np.int64)
    infos = _infos(store, writer)
    for lane in store.lanes:
        columns = {
            key: values.astype(np.int64) for key, values in store.events(lanes=[lane.id]).items() if key != "depth"
        }
        if not len(columns["ts"]):
            continue
        pid = lane.pid if lane.pid >= 0 else untold
        number = writer.lane(
            lane.kind,  # type: ignore[arg-type]  # one of those that a writer took
            process=lane.process,
            pid=pid,
            thread=lane.thread,
            tid=lane.tid,
            device=lane.device,
            stream=lane.stream,
            title=lane.title,
        )
        link = columns["link"]
        columns["lane"] = np.full(len(link), number)
        columns["name"], columns["info"] = names[columns["name"]], infos[columns["info"]]
        columns["link"] = np.where(link != 0, link_of(pid, link % CORRELATIONS), 0)
        writer.add_many(columns)


def _infos(store: Store, writer: StoreWriter) -> Ints:
    """Return the number of each text with details in the new store, by its number in the old one; 0 stays none."""
    rows = store.sql("SELECT id, text FROM infos ORDER BY id")
    numbers = np.zeros(int(rows["id"].max(initial=0)) + 1, np.int64)
    for old, text in zip(rows["id"].tolist(), rows["text"].tolist(), strict=True):
        numbers[old] = writer.info(text)
    return numbers
