"""What torch's flight recorder tells of the collectives of several ranks: who called what, and where they part."""

import json
from dataclasses import dataclass

from profiling.evidence import Evidence, RecordedTrace

SOURCE = "flight-recorder"
_MOST_CALLS = 10_000
"""Newest calls of a rank that are looked at; a recorder holds some thousands."""

_ALIKE = frozenset(
    {
        "all_reduce", "reduce", "broadcast", "all_gather", "_all_gather_base", "all_gather_into_tensor",
        "reduce_scatter", "_reduce_scatter_base", "reduce_scatter_tensor",
    }
)  # fmt: skip
"""Collectives to which every rank brings tensors of the same sizes."""

Key = tuple[str, tuple[int, ...]]
"""A process group: its name and its ranks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of a collective: its number within its group, when it was called (Unix ns), and whether it has ended."""

    sequence: int
    name: str
    sizes: str
    created: int
    is_over: bool
    place: str

    @property
    def words(self) -> str:
        """How a sentence calls it."""
        return f"{self.name} {self.sizes}".strip()

    def meets(self, other: "Call") -> bool:
        """Return True if two ranks may have called the same collective so."""
        own, theirs = _plain(self.name), _plain(other.name)
        return own == theirs and (own not in _ALIKE or self.sizes == other.sizes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Flight:
    """The dump of one rank. `enqueued` is the number of the last collective that it called in each group.

    `dumped_at` in Unix ns, 0 where it is not known.
    """

    recorded: RecordedTrace
    rank: int
    dumped_at: int
    enqueued: dict[Key, int]
    calls: dict[Key, dict[int, Call]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parting:
    """The first collective of a group at which ranks do not meet: what each one called, None for nothing.

    `waited` are the seconds for which those that came have waited, None where no dump tells when it was made; `ranks`
    are those that differ from most, () where nobody can say.
    """

    group: str
    sequence: int
    calls: dict[int, Call | None]
    ranks: tuple[int, ...]
    waited: float | None


def flights(evidence: Evidence) -> list[Flight]:
    """Return the dumps among the files of a capture, by rank; a rank's newest one where it has several."""
    by_rank: dict[int, Flight] = {}
    unknown = -1
    for recorded in evidence.recorded:
        if recorded.store.meta.get("source") != SOURCE:
            continue
        rank_of_file = recorded.store.meta.get("rank")
        rank = recorded.rank if recorded.rank >= 0 else rank_of_file if isinstance(rank_of_file, int) else unknown
        unknown -= rank == unknown
        flight = _flight(recorded, rank)
        if rank not in by_rank or by_rank[rank].recorded.store.end < recorded.store.end:
            by_rank[rank] = flight
    return [by_rank[rank] for rank in sorted(by_rank)]


def partings(dumps: list[Flight]) -> list[Parting]:
    """Return where the ranks of each group part, at most one collective a group."""
    moments = [one.dumped_at for one in dumps if one.dumped_at]
    mismatches = []
    for group in sorted({key for one in dumps for key in one.calls}):
        of_group = [one for one in dumps if group in one.calls or group in one.enqueued]
        if len(of_group) > 1:
            parting = _different(group, of_group) or _behind(group, of_group, max(moments, default=0))
            mismatches += [parting] if parting else []
    return mismatches


def _flight(recorded: RecordedTrace, rank: int) -> Flight:
    store = recorded.store
    about = store.meta.get("flight")
    facts = about if isinstance(about, dict) else {}
    groups = facts.get("groups", {})
    ranks = {name: tuple(each.get("ranks", ())) for name, each in groups.items()}
    calls: dict[Key, dict[int, Call]] = {}
    rows = store.sql(
        "SELECT e.ts, n.text AS name, i.text AS info FROM ev e JOIN names n ON n.id = e.name "
        "JOIN infos i ON i.id = e.info ORDER BY e.ts DESC LIMIT ?",
        [_MOST_CALLS],
    )
    for created, name, info in zip(rows["ts"].tolist(), rows["name"].tolist(), rows["info"].tolist(), strict=True):
        details = json.loads(info)
        sequence = details.get("sequence", -1)
        if details.get("p2p") or sequence < 0:
            continue
        group = (str(details.get("group", "")), ranks.get(details.get("group", ""), ()))
        calls.setdefault(group, {})[sequence] = Call(
            sequence=sequence,
            name=name,
            sizes=details.get("input") or details.get("output") or "",
            created=created,
            is_over=bool(details.get("over")),
            place=details.get("place", ""),
        )
    enqueued = {group: max(numbers) for group, numbers in calls.items()}
    for name, each in groups.items():
        if each.get("enqueued", -1) >= 0:
            enqueued[name, ranks[name]] = each["enqueued"]
    return Flight(recorded=recorded, rank=rank, dumped_at=facts.get("dumped_at") or 0, enqueued=enqueued, calls=calls)


def _different(group: Key, of_group: list[Flight]) -> Parting | None:
    """Return the first collective that ranks called in different ways."""
    calls_of_rank = [one.calls.get(group, {}) for one in of_group]
    for sequence in sorted(set.union(*(set(calls) for calls in calls_of_rank))):
        calls = {
            one.rank: calls[sequence] for one, calls in zip(of_group, calls_of_rank, strict=True) if sequence in calls
        }
        kinds: list[list[int]] = []
        for rank, call in calls.items():
            alike = next((kind for kind in kinds if calls[kind[0]].meets(call)), None)
            if alike is None:
                kinds.append([rank])
            else:
                alike.append(rank)
        if len(kinds) > 1:
            return Parting(
                group=_title(group),
                sequence=sequence,
                calls=dict(calls),
                ranks=_minority(kinds),
                waited=None,
            )
    return None


def _behind(group: Key, of_group: list[Flight], now: int) -> Parting | None:
    """Return the collective that some wait in and others never called, or that all are in and nobody leaves.

    Dumps are made one after the other: where the call that a rank lacks has ended on the others, it came later.
    """
    last = {one.rank: one.enqueued.get(group, -1) for one in of_group}
    lowest = min(last.values())
    late = tuple(rank for rank, number in last.items() if number == lowest) if lowest < max(last.values()) else ()
    sequence = lowest + 1 if late else lowest
    calls = {one.rank: one.calls.get(group, {}).get(sequence) for one in of_group}
    waiting = [call for call in calls.values() if call is not None and not call.is_over]
    if not waiting or any(call is not None and call.is_over for call in calls.values()):
        return None
    waited = (now - min(call.created for call in waiting)) / 1e9 if now else None
    if not late and waited is None:
        return None  # all are there: that they were under way is no news
    return Parting(group=_title(group), sequence=sequence, calls=calls, ranks=late, waited=waited)


def _minority(kinds: list[list[int]]) -> tuple[int, ...]:
    """Return the ranks that are not with most; () where no kind has most."""
    ordered = sorted(kinds, key=len, reverse=True)
    return tuple(rank for kind in ordered[1:] for rank in kind) if len(ordered[0]) > len(ordered[1]) else ()


def _title(group: Key) -> str:
    return group[0] or "?"


def _plain(name: str) -> str:
    """Return a collective without its library: "all_reduce" of "gloo:all_reduce"."""
    return name.rpartition(":")[2]
