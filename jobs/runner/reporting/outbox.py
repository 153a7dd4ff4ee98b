"""Cut the event files into numbered batches, and make any batch again that the console asks for.

`cuts.jsonl` holds one line a batch: which bytes of which file are in it. The line is written before the batch is sent,
and the files only grow, so the content of a number never changes, whoever is killed and whatever is asked for again.
Nothing is kept in memory but the ranges of batches that are not yet durable.
"""

import dataclasses
import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jobs.runner.reporting.append_only import AppendFile, Reserve
from jobs.runner.reporting.event_files import MAX_EVENT_BYTES, Source

MAX_EVENTS = 2000
MAX_BYTES = 1_000_000  # of encoded events; the rest of the MiB is for the envelope
FORGET_EVERY = 500  # batches between notes of what is durable, which keep a restarted runner's memory small
READ_BYTES = MAX_BYTES + 3 * MAX_EVENT_BYTES


class BatchUnknown(LookupError):
    """The console asks for a batch that was never cut here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchContent:
    """What is in a batch: `(source, from, to)` in bytes, in the order in which they are shipped."""

    number: int
    t: int  # Unix ns; the time of its log lines
    ranges: tuple[tuple[str, int, int], ...]
    left_out: tuple[int, ...] = ()  # places of events that the console will never take; () with `refused`: all of them
    refused: str = ""  # why, in the console's words


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxBatch:
    """A numbered list of encoded events."""

    number: int
    events: tuple[bytes, ...] = field(repr=False)


class Outbox:
    """The batches of one attempt. `sources` are read in order, each to its end before the next.

    The last source holds the terminal event: nothing is cut after it.
    """

    def __init__(
        self,
        *,
        run_dir: Path,
        sources: Sequence[Source],
        attempt: int,
        reserve: Reserve,
        clock_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._sources = {source.name: source for source in sources}
        self._last_source = sources[-1].name
        self._attempt = attempt
        self._clock_ns = clock_ns
        self._lock = threading.Lock()
        self._is_whole = False
        self._cuts: dict[int, BatchContent] = {}
        self._positions = dict.fromkeys(self._sources, 0)
        self._next = 1
        self._forgotten = self._noted = 0
        path = run_dir / "cuts.jsonl"
        self._journal = AppendFile(path, reserve=reserve)
        with path.open("rb") as lines:
            for line in lines:
                self._replay(json.loads(line))

    @property
    def next_number(self) -> int:
        """The number of the batch that will be cut next."""
        return self._next

    @property
    def position(self) -> dict[str, int]:
        """How far each source has been cut, in bytes."""
        return dict(self._positions)

    def batch(self, number: int) -> OutboxBatch | None:
        """Return the batch of that number; cuts it if it is the next one. None if there is nothing to cut.

        Raises: BatchUnknown for one that was never cut; OSError if the disk takes no line of the journal.
        """
        with self._lock:
            if number == self._next:
                return self._cut()
            cut = self._cuts.get(number) or self._recall(number)
        return OutboxBatch(number=number, events=tuple(self._again(cut)))

    def forget(self, durable_through: int) -> None:
        """Drop what is in the console's database."""
        with self._lock:
            for number in range(self._forgotten + 1, min(durable_through, self._next - 1) + 1):
                self._cuts.pop(number, None)
            self._forgotten = max(self._forgotten, min(durable_through, self._next - 1))
            if self._forgotten - self._noted >= FORGET_EVERY:
                self._journal.append(b'{"durable":%d}\n' % self._forgotten)
                self._noted = self._forgotten

    def skip_to(self, number: int) -> None:
        """Go on with `number`: the console has everything below it from a runner whose files are not here."""
        with self._lock:
            if number > self._next:
                self._write(BatchContent(number=number - 1, t=self._clock_ns(), ranges=()))

    def refuse(self, batch: OutboxBatch, text: str, left_out: Sequence[int]) -> None:
        """Ship the batch without the events at these places from now on, and with a note that says so.

        Without places, or if it was refused before, the note travels alone. The events stay in their files.
        """
        with self._lock:
            cut = self._cuts[batch.number]
            places = tuple(left_out) if not cut.refused else ()
            self._write(dataclasses.replace(cut, left_out=places, refused=text[:1000]))

    def no_more_writers(self) -> None:
        """Say that the files are complete, so that an unfinished last line of a log is shipped too."""
        self._is_whole = True

    def number_of_last_cut_with(self, source: str) -> int | None:
        """Return the newest kept batch that holds something of `source`."""
        with self._lock:
            numbers = [n for n, cut in self._cuts.items() if any(name == source for name, _, _ in cut.ranges)]
        return max(numbers, default=None)

    def close(self) -> None:
        """Close the journal."""
        self._journal.close()

    def _cut(self) -> OutboxBatch | None:
        if self._positions[self._last_source]:
            return None
        t = self._clock_ns()
        events: list[bytes] = []
        ranges: list[tuple[str, int, int]] = []
        room = MAX_BYTES
        for name, source in self._sources.items():
            start = end = self._positions[name]
            is_full = False
            for piece in source.pieces(
                _read(source.path, start, READ_BYTES), start=start, t=t, is_whole=self._is_whole
            ):
                if len(piece.data) + 1 > room or len(events) == MAX_EVENTS:
                    is_full = True
                    break
                events.append(piece.data)
                room -= len(piece.data) + 1
                end = piece.end
            if end > start:
                ranges.append((name, start, end))
            if is_full or end - start > MAX_BYTES:
                break
        if not events:
            return None
        cut = BatchContent(number=self._next, t=t, ranges=tuple(ranges))
        self._write(cut)
        return OutboxBatch(number=cut.number, events=tuple(events))

    def _again(self, cut: BatchContent) -> list[bytes]:
        events = []
        for name, start, end in cut.ranges:
            source = self._sources[name]
            data = _read(source.path, start, end - start)
            events += [piece.data for piece in source.pieces(data, start=start, t=cut.t, is_whole=True)]
        if not cut.refused:
            return events
        remaining = [event for place, event in enumerate(events) if place not in cut.left_out] if cut.left_out else []
        return [*remaining, self._note(cut, len(events) - len(remaining))]

    def _note(self, cut: BatchContent, num_left_out: int) -> bytes:
        text = f"{num_left_out} events of batch {cut.number} are in the run directory only: {cut.refused}"
        head = {"kind": "note", "attempt": self._attempt, "step": -1, "role": "runner", "rank": 0, "t": cut.t}
        return json.dumps({**head, "text": text, "meta": {}}, ensure_ascii=False).encode()

    def _write(self, cut: BatchContent) -> None:
        self._journal.append(_encode(cut))
        self._remember(cut)

    def _recall(self, number: int) -> BatchContent:
        """Read the journal again from `number` on: a console that lost its database asks for what was durable once."""
        with self._journal.path.open("rb") as lines:
            batches = [_decode(raw) for raw in map(json.loads, lines) if raw.get("batch", 0) >= number]
        self._cuts = {cut.number: cut for cut in batches}
        self._forgotten = min(self._forgotten, max(0, number - 1))
        if number not in self._cuts:
            raise BatchUnknown(f"The console asks for batch {number}, which was never made here.")
        return self._cuts[number]

    def _replay(self, raw: Mapping[str, Any]) -> None:
        if "durable" in raw:
            self._forgotten = self._noted = raw["durable"]
            self._cuts = {number: cut for number, cut in self._cuts.items() if number > self._forgotten}
        else:
            self._remember(_decode(raw))

    def _remember(self, cut: BatchContent) -> None:
        self._cuts[cut.number] = cut
        self._next = max(self._next, cut.number + 1)
        for name, _, end in cut.ranges:
            self._positions[name] = end


def _read(path: Path, start: int, size: int) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(start)
            return file.read(size)
    except FileNotFoundError:
        return b""


def _encode(cut: BatchContent) -> bytes:
    raw: dict[str, object] = {"batch": cut.number, "t": cut.t, "ranges": cut.ranges}
    if cut.refused:
        raw |= {"left_out": cut.left_out, "refused": cut.refused}
    return json.dumps(raw, separators=(",", ":")).encode() + b"\n"


def _decode(raw: Mapping[str, Any]) -> BatchContent:
    ranges = tuple((str(name), int(start), int(end)) for name, start, end in raw["ranges"])
    left_out = tuple(raw.get("left_out", ()))
    return BatchContent(
        number=raw["batch"], t=raw["t"], ranges=ranges, left_out=left_out, refused=raw.get("refused", "")
    )
