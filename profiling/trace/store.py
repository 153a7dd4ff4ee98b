"""Read a store: the only access to imported traces. Open ones are kept: opening takes longer than most questions."""

import json
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from profiling.trace import schema
from profiling.trace.category import Category
from profiling.trace.launches import is_launch
from profiling.trace.schema import StoreFacts

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

Columns = dict[str, npt.NDArray[Any]]

COLUMNS = ("lane", "depth", "ts", "dur", "name", "cat", "link", "outer", "bytes", "info")
_MOST_LINKED = 16


class NotAStore(ValueError):
    """The file is no store, or one of another version of the software."""


def is_of_store(error: BaseException) -> bool:
    """Return True for an error of the database; whether its file is to blame, `is_whole` says."""
    import duckdb

    return isinstance(error, duckdb.Error)


def is_whole(path: Path) -> bool:
    """Return True if there is a store of this version all of which can be read: its blocks have checksums.

    It takes a second for ten million events, so what was found holds for a minute.
    """
    try:
        about = path.stat()
    except OSError:
        return False
    return _is_whole(path, about.st_ino, about.st_mtime_ns, int(time.monotonic() / 60))


@lru_cache(maxsize=256)
def _is_whole(path: Path, _inode: int, _mtime: int, _minute: int) -> bool:
    try:
        with Store(path) as store:
            store.read_all()
    except Exception:  # whatever half a database can lead to
        return False
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """One line of the timeline: a thread, a stream or a set of ranges, with `depths` rows of nested events."""

    id: int
    kind: str
    process: str
    pid: int
    thread: str
    tid: int
    device: int
    stream: int
    title: str
    depths: int
    events: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CounterSeries:
    """A quantity that was sampled over time."""

    id: int
    name: str
    unit: str
    device: int
    process: str
    samples: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A sentence about the trace; `severity` is info, warning or error."""

    severity: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchHit:
    """What a search found under one name: how many events, their time together [ns], and the longest of them."""

    name: str
    category: int
    events: int
    total: int
    lane: int
    depth: int
    begin: int
    duration: int
    event: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredEvent:
    """One event. `ts` in Unix ns, `dur` in ns; `link` and `outer` join it to others (0: to none)."""

    id: int
    lane: int
    depth: int
    ts: int
    dur: int
    name: str
    category: str
    link: int
    outer: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EventDetail:
    """An event with its details, the first events of the same process with the same `link`, and those with the same
    `outer`.
    """

    event: StoredEvent
    info: dict[str, object]
    linked: tuple[StoredEvent, ...]
    operators: tuple[StoredEvent, ...]


class Store:
    """An imported trace. Not for more than one thread at a time. Raises: NotAStore."""

    def __init__(self, path: Path) -> None:
        import duckdb

        try:
            self._database: DuckDBPyConnection | None = schema.connect(path)
            self._connection = schema.another(self._database)
            rows = self._connection.execute("SELECT key, value FROM meta").fetchall()
        except duckdb.Error as error:
            raise NotAStore(f"{path.name} is no imported trace: {error}") from error
        meta = {key: json.loads(value) for key, value in rows}
        if meta.get("version") != schema.VERSION:
            raise NotAStore(f"{path.name} was imported by another version of Pitwall; import the file again.")
        try:
            self.facts = StoreFacts(**meta.pop("facts"))
            self.pyramid: tuple[int, ...] = tuple(meta.pop("pyramid"))
        except (KeyError, TypeError) as error:
            raise NotAStore(f"{path.name} was written by another version of Pitwall; import the file again.") from error
        self.begin, self.end = self.facts.begin, self.facts.end
        self.meta: dict[str, object] = meta
        """What the trace says of itself, by key."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def another(self) -> "Store":
        """Return the same store for another thread, with a connection of its own to what is open and read already.

        The database is let go of with the last of them: closing it would close the connections of all.
        """
        assert self._database is not None, "the store is closed"
        made = object.__new__(Store)
        made.meta, made.facts, made.pyramid, made.begin, made.end = (
            self.meta, self.facts, self.pyramid, self.begin, self.end
        )  # fmt: skip
        made._database, made._connection = self._database, schema.another(self._database)
        return made

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()
        self._database = None

    def read_all(self) -> None:
        """Read every block once. Raises: duckdb.Error for one that is damaged."""
        listed = "SELECT table_name FROM duckdb_tables() WHERE database_name = current_database()"
        tables = self._connection.execute(listed).fetchall()
        for (table,) in tables:
            self._connection.execute(f'SELECT sum(hash("{table}")) FROM "{table}"').fetchall()  # noqa: S608

    @cached_property
    def lanes(self) -> tuple[Lane, ...]:
        """Every lane by its number, also those without events."""
        names = ("id", "kind", "process", "pid", "thread", "tid", "device", "stream", "title", "depths", "events")
        rows = self._connection.execute(f"SELECT {', '.join(names)} FROM lanes ORDER BY id").fetchall()  # noqa: S608
        return tuple(Lane(**dict(zip(names, row, strict=True))) for row in rows)

    @cached_property
    def names(self) -> list[str]:
        """Texts by number."""
        return [text for (text,) in self._connection.execute("SELECT text FROM names ORDER BY id").fetchall()]

    @cached_property
    def has_arrows(self) -> bool:
        """Whether links from forward to backward were kept; files that were imported before they were have none."""
        tables = "SELECT table_name FROM duckdb_tables() WHERE database_name = current_database()"
        return ("arrows",) in self._connection.execute(tables).fetchall()

    @cached_property
    def notes(self) -> tuple[Note, ...]:
        """What the reader had to say."""
        rows = self._connection.execute("SELECT severity, text FROM notes").fetchall()
        return tuple(Note(severity=severity, text=text) for severity, text in rows)

    @cached_property
    def series(self) -> tuple[CounterSeries, ...]:
        """Sampled quantities by number."""
        names = ("id", "name", "unit", "device", "process", "samples")
        rows = self._connection.execute("SELECT * FROM series ORDER BY id").fetchall()
        return tuple(CounterSeries(**dict(zip(names, row, strict=True))) for row in rows)

    def samples(
        self, series: int, *, begin: int | None = None, end: int | None = None
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        """Return times [n] in Unix ns and values [n] of a series, by time."""
        columns = self.sql(
            "SELECT ts, value FROM samples WHERE series = ? AND ts >= ? AND ts < ? ORDER BY ts",
            [series, *_window(begin, end)],
        )
        return columns["ts"], columns["value"]

    def events(
        self,
        *,
        lanes: Sequence[int] | None = None,
        categories: Sequence[int] | None = None,
        begin: int | None = None,
        end: int | None = None,
        columns: Sequence[str] = COLUMNS,
    ) -> Columns:
        """Return the events that touch [begin, end), sorted by lane and start, the longer first; all arrays are [n].

        Columns are those of COLUMNS and `id`, the event's number. Raises: ValueError for another one.
        """
        unknown = set(columns) - {*COLUMNS, "id"}
        if unknown:
            raise ValueError(f"There is no column {', '.join(sorted(unknown))}; there are id, {', '.join(COLUMNS)}.")
        chosen = ", ".join("rowid AS id" if name == "id" else f'"{name}"' for name in columns)
        where: list[str] = ["true"]
        values: list[object] = []
        if lanes is not None:
            where.append("list_contains(?, lane)")
            values.append([int(lane) for lane in lanes])
        if categories is not None:
            where.append("list_contains(?, cat)")
            values.append([int(category) for category in categories])
        if begin is not None:
            where.append("(ts >= ? OR ts + dur > ?)")
            values += [begin, begin]
        if end is not None:
            where.append("ts < ?")
            values.append(end)
        return self.sql(
            f"SELECT {chosen} FROM ev WHERE {' AND '.join(where)} ORDER BY lane, ts, dur DESC, depth",  # noqa: S608
            values,
        )

    @cached_property
    def program(self) -> tuple[int, int]:
        """From when to when anything but the profiler's own work was recorded, in Unix ns; all of it if nothing was.

        Profilers are at work before the program begins and after it has ended: that is no idle time of the program, nor
        is it while the system loads it, which only what watches the CPU sees.
        """
        own = [[int(one) for one in (Category.OVERHEAD, Category.NATIVE, Category.SCHEDULING)]]
        if not len(self.sql("SELECT 1 AS one FROM ev WHERE list_contains(?, cat) LIMIT 1", own)["one"]):
            return self.begin, self.end
        bounds = self.sql(
            "SELECT coalesce(min(a), -1) AS first, coalesce(max(b), -1) AS last FROM (SELECT ts AS a, ts + dur AS b "
            "FROM ev WHERE NOT list_contains(?, cat) UNION ALL SELECT ts, ts FROM samples)",
            own,
        )
        first, last = int(bounds["first"][0]), int(bounds["last"][0])
        return (first, last) if first < last else (self.begin, self.end)

    def sql(self, query: str, params: Sequence[object] | Mapping[str, object] = ()) -> Columns:
        """Return columns of a query that stands in our code: never pass on what a client wrote."""
        fetched = self._connection.execute(query, params).fetchnumpy()
        return {name: np.asarray(values) for name, values in fetched.items()}

    def search(self, text: str, limit: int) -> list[SearchHit]:
        """Return up to `limit` names that contain `text`, in any case, those that took longest first."""
        rows = self._connection.execute(
            "SELECT n.text, first(e.cat), count(*), sum(e.dur)::DOUBLE AS total, arg_max(e.rowid, e.dur) "
            "FROM ev e JOIN names n ON n.id = e.name WHERE contains(lower(n.text), lower(?)) "
            "GROUP BY n.text ORDER BY total DESC, n.text LIMIT ?",
            [text, limit],
        ).fetchall()
        hits = []
        for name, category, events, total, number in rows:
            longest = self.event(number)
            hits.append(
                SearchHit(
                    name=name,
                    category=category,
                    events=events,
                    total=int(total),
                    lane=longest.lane,
                    depth=longest.depth,
                    begin=longest.ts,
                    duration=longest.dur,
                    event=number,
                )
            )
        return hits

    def detail(self, number: int) -> EventDetail | None:
        """Return all that is known of an event, with the events that it caused or was caused by; None if there is
        none of that number.
        """
        texts = self._connection.execute(
            "SELECT i.text FROM ev e LEFT JOIN infos i ON i.id = e.info WHERE e.rowid = ?", [number]
        ).fetchall()
        if not texts:
            return None
        event = self.event(number)
        return EventDetail(
            event=event,
            info=json.loads(texts[0][0]) if texts[0][0] else {},
            linked=_launches(self._others(event, "link", event.link)),
            operators=self._others(event, "outer", event.outer),
        )

    def _others(self, event: StoredEvent, column: str, value: int) -> tuple[StoredEvent, ...]:
        """Return the first other events of the same process with this value, which is not 0, in a column."""
        if not value:
            return ()
        own_lane = self.lanes[event.lane]
        family = [lane.id for lane in self.lanes if lane.pid == own_lane.pid and lane.process == own_lane.process]
        others = self._connection.execute(
            f'SELECT rowid FROM ev WHERE "{column}" = ? AND rowid != ? AND list_contains(?, lane) '  # noqa: S608
            f"ORDER BY rowid LIMIT {_MOST_LINKED}",
            [value, event.id, family],
        ).fetchall()
        return tuple(self.event(number) for (number,) in others)

    def event(self, number: int) -> StoredEvent:
        """Return one event. Raises: LookupError if there is none of that number."""
        (row,) = self._connection.execute(
            'SELECT e.rowid, e.lane, e.depth, e.ts, e.dur, n.text, e.cat, e.link, e."outer", e.bytes '
            "FROM ev e JOIN names n ON n.id = e.name WHERE e.rowid = ?",
            [number],
        ).fetchall()
        names = ("id", "lane", "depth", "ts", "dur", "name", "category", "link", "outer", "bytes")
        return StoredEvent(**{**dict(zip(names, row, strict=True)), "category": Category(row[6]).name.lower()})


def _launches(linked: tuple[StoredEvent, ...]) -> tuple[StoredEvent, ...]:
    """Return the events without calls that only asked for something, where one of the calls is a launch."""
    calls = {category.name.lower() for category in (Category.RUNTIME, Category.SYNC)}
    if not any(one.category in calls and is_launch(one.name) for one in linked):
        return linked
    return tuple(one for one in linked if one.category not in calls or is_launch(one.name))


def _window(begin: int | None, end: int | None) -> tuple[int, int]:
    return (0 if begin is None else begin, (1 << 63) - 1 if end is None else end)


MOST_IDLE = 8
IDLE_SECONDS = 300.0

_Key = tuple[str, int, int]
"""Path, inode and time of change: a file that was imported again is another one at the same path."""

_idle: list[tuple[_Key, float, Store]] = []  # the file, when it was put back; the newest last
_lent: list[tuple[_Key, Store]] = []
_lock = threading.Lock()


@contextmanager
def opened(path: Path) -> Iterator[Store]:
    """Lend an open store to one thread. Raises: NotAStore; FileNotFoundError once the trace was deleted."""
    state = path.stat()
    key = (str(path), state.st_ino, state.st_mtime_ns)
    store = _take(key) or _lend(key, Store(path))
    try:
        yield store
    except BaseException:
        with _lock:
            _lent.remove((key, store))
        store.close()
        raise
    for old in _put(key, store):
        old.close()


def _take(key: _Key) -> Store | None:
    """Lend an idle store, else another one of one that is lent: they share what was read of the file."""
    with _lock:
        at = next((i for i in range(len(_idle) - 1, -1, -1) if _idle[i][0] == key), -1)
        if at >= 0:
            store = _idle.pop(at)[2]
        else:
            lent = next((store for lent_key, store in _lent if lent_key == key), None)
            if lent is None:
                return None
            store = lent.another()
    return _lend(key, store)


def _lend(key: _Key, store: Store) -> Store:
    with _lock:
        _lent.append((key, store))
    return store


def _put(key: _Key, store: Store) -> list[Store]:
    """Keep the store; return those that are to be closed for it."""
    now = time.monotonic()
    with _lock:
        _lent.remove((key, store))
        _idle.append((key, now, store))
        over = len(_idle) - MOST_IDLE
        gone = [entry for i, entry in enumerate(_idle) if i < over or now - entry[1] > IDLE_SECONDS]
        _idle[:] = [entry for entry in _idle if entry not in gone]
    return [entry[2] for entry in gone]
