"""Arrows of an event, both ways to the end of the chain: launch to kernel, forward to backward, a collective's ranks.

From a kernel the chain leads to the call that launched it, to the operators around that call, and along arrows of
autograd to the operators backward (or forward) and what they launched. From an operator it leads the same ways.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from profiling.analysis.communication import plain_name
from profiling.trace.category import DEVICE, Category
from profiling.trace.store import Store, StoredEvent

Kind = Literal["launch", "backward", "collective"]

MOST = 64
"""Arrows of one event."""
_MOST_OPERATORS = 32
_NEAR = 1_000
"""An arrow begins where its operator does [ns]: a trace tells both in microseconds."""
_DEVICE = ", ".join(str(int(one)) for one in sorted(DEVICE))
_OPERATORS = ", ".join(str(int(one)) for one in (Category.OPERATOR, Category.RANGE))


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrow:
    """From one event to another of the same store."""

    kind: Kind
    source: StoredEvent
    target: StoredEvent


def arrows(store: Store, number: int) -> list[Arrow]:
    """Return the arrows of an event within its store, launches first; at most MOST. Raises: LookupError."""
    return _Chain(store).of(store.event(number))


class _Chain:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._streams = {lane.id for lane in store.lanes if lane.kind == "stream"}
        self._found: dict[tuple[int, int], Arrow] = {}

    def of(self, event: StoredEvent) -> list[Arrow]:
        if event.lane in self._streams:
            hosts = self._launches_of(event)
        else:
            hosts = [event]
            self._launched_in(event)
        for host in hosts:
            for operator in self._other_ends(host):
                self._launched_in(operator)
        return sorted(self._found.values(), key=lambda one: (one.kind != "launch", one.source.ts))[:MOST]

    def _add(self, kind: Kind, source: StoredEvent, target: StoredEvent) -> None:
        self._found.setdefault((source.id, target.id), Arrow(kind=kind, source=source, target=target))

    def _launches_of(self, event: StoredEvent) -> list[StoredEvent]:
        """Return the calls that launched something on a device."""
        calls = [one for one in self._linked([event.link], event) if one.lane not in self._streams]
        for call in calls:
            self._add("launch", call, event)
        return calls

    def _launched_in(self, event: StoredEvent) -> None:
        """Find what was launched by calls that lie in an event of a thread."""
        rows = self._store.sql(
            'SELECT rowid AS id FROM ev WHERE lane = ? AND ts >= ? AND ts + dur <= ? AND ts < ? AND "link" != 0 '
            "ORDER BY ts LIMIT 64",
            [event.lane, event.ts, event.ts + event.dur, event.ts + max(event.dur, 1)],
        )
        calls = {call.link: call for call in map(self._store.event, rows["id"].tolist())}
        for target in self._linked(list(calls), event):
            if target.lane in self._streams:
                self._add("launch", calls[target.link], target)

    def _linked(self, links: Sequence[int], event: StoredEvent) -> list[StoredEvent]:
        """Return the events of the process of another one with one of these links."""
        wanted = [link for link in links if link]
        if not wanted:
            return []
        own = self._store.lanes[event.lane]
        family = [one.id for one in self._store.lanes if (one.pid, one.process) == (own.pid, own.process)]
        rows = self._store.sql(
            'SELECT rowid AS id FROM ev WHERE "link" IN (SELECT unnest(?::BIGINT[])) AND list_contains(?, lane) '
            "ORDER BY rowid LIMIT 128",
            [wanted, family],
        )
        return [self._store.event(number) for number in rows["id"].tolist() if number != event.id]

    def _other_ends(self, event: StoredEvent) -> list[StoredEvent]:
        """Return the operators at the other ends of the arrows of autograd that begin or end in or around an event."""
        if not self._store.has_arrows:
            return []
        end = event.ts + event.dur
        around = self._store.sql(
            f"SELECT ts FROM ev WHERE lane = ? AND ts <= ? AND ts + dur >= ? AND cat IN ({_OPERATORS})",  # noqa: S608
            [event.lane, event.ts, end],
        )["ts"].tolist()
        spans = [(event.ts - _NEAR, end - 1), *((at - _NEAR, at + _NEAR) for at in around)]
        where = " OR ".join(["ts BETWEEN ? AND ?"] * len(spans))
        rows = self._store.sql(
            f"SELECT number, ts, is_end FROM arrows WHERE lane = ? AND ({where}) ORDER BY ts LIMIT {_MOST_OPERATORS}",  # noqa: S608
            [event.lane, *(moment for span in spans for moment in span)],
        )
        operators = []
        for number, ts, is_end in zip(*(rows[key].tolist() for key in ("number", "ts", "is_end")), strict=True):
            here = self._operator(event.lane, ts)
            other = self._other(number, is_end)
            if here is None or other is None:
                continue
            self._add("backward", *((other, here) if is_end else (here, other)))
            operators.append(other)
        return operators

    def _other(self, number: int, is_end: bool) -> StoredEvent | None:
        rows = self._store.sql(
            "SELECT lane, ts FROM arrows WHERE number = ? AND is_end != ? LIMIT 1", [number, bool(is_end)]
        )
        return self._operator(int(rows["lane"][0]), int(rows["ts"][0])) if len(rows["ts"]) else None

    def _operator(self, lane: int, ts: int) -> StoredEvent | None:
        """Return the operator of a lane that begins at a moment, the outermost of several."""
        rows = self._store.sql(
            f"SELECT rowid AS id FROM ev WHERE lane = ? AND ts BETWEEN ? AND ? AND cat IN ({_OPERATORS}) "  # noqa: S608
            "ORDER BY abs(ts - ?), depth LIMIT 1",
            [lane, ts - _NEAR, ts + _NEAR, ts],
        )
        return self._store.event(int(rows["id"][0])) if len(rows["id"]) else None


def is_collective(event: StoredEvent) -> bool:
    """Return True for a collective, on a device or of the CPU."""
    return event.category == "communication"


def place_of(store: Store, event: StoredEvent) -> tuple[str, int, int]:
    """Return what a collective is called, which of the store's of that name it is, and how many there are."""
    starts = _starts(store, plain_name(event.name))
    return plain_name(event.name), starts.index((event.ts, event.id)), len(starts)


def peer(store: Store, name: str, place: int, of: int) -> StoredEvent | None:
    """Return the collective of another rank that is the same one: the k-th of its name, where both have as many."""
    starts = _starts(store, name)
    return store.event(starts[place][1]) if len(starts) == of else None


def _starts(store: Store, name: str) -> list[tuple[int, int]]:
    """Return begin and number of the collectives of a name, by begin: those of streams where there are any."""
    numbers = [number for number, text in enumerate(store.names) if plain_name(text) == name]
    rows = store.sql(
        "SELECT rowid AS id, lane, ts FROM ev WHERE cat = ? AND list_contains(?, name) ORDER BY ts, rowid",
        [int(Category.COMMUNICATION), numbers],
    )
    collectives = list(zip(rows["ts"].tolist(), rows["id"].tolist(), rows["lane"].tolist(), strict=True))
    streams = {lane.id for lane in store.lanes if lane.kind == "stream"}
    on_device = [one for one in collectives if one[2] in streams]
    return [(ts, number) for ts, number, _ in on_device or collectives]
