"""Lanes of a store under construction: threads, streams of devices, ranges beside them."""

from typing import Literal

from profiling.trace.frames import INNER_FRAMES

LaneKind = Literal["thread", "stream", "range", "counter", "phase"]
MOST_LANES = 4096

Lane = tuple[LaneKind, str, int, str, int, int, int, str]
"""Kind, process, its number, thread, its number, device, stream, title: a row of the table `lanes`."""


class TooMuch(ValueError):
    """The trace holds more of something than a store takes; the sentence says what and how much."""


class Lanes:
    """Numbered as they are asked for first."""

    def __init__(self) -> None:
        self._lanes: list[Lane] = []
        self._numbers: dict[Lane, int] = {}
        self._frames: dict[int, int] = {}
        """Lanes of frames of Python, with the lane for those inside frameworks; -1 while it has none."""

    def __len__(self) -> int:
        return len(self._lanes)

    def number(self, lane: Lane) -> int:
        """Return the number of the lane with these properties, which is made when they are new. Raises: TooMuch."""
        key = _kept(*lane)
        number = self._numbers.get(key)
        if number is None:
            if len(self._lanes) >= MOST_LANES:
                raise TooMuch(f"The trace has more than {MOST_LANES:,} threads and streams, which is the most.")
            number = self._numbers[key] = len(self._lanes)
            self._lanes.append(key)
        return number

    def describe(self, lane: int, *, process: str | None, pid: int | None, thread: str | None) -> None:
        """Say more of a lane than was known when it was made; None leaves what there is."""
        old = self._lanes[lane]
        self._lanes[lane] = _kept(
            old[0],
            old[1] if process is None else process,
            old[2] if pid is None else pid,
            old[3] if thread is None else thread,
            *old[4:],
        )

    def hold_frames(self, lane: int) -> None:
        """Say that a lane holds frames of Python alone."""
        self._frames[lane] = -1

    @property
    def have_frames(self) -> bool:
        """Return True if any lane does."""
        return bool(self._frames)

    def holds_frames(self, lane: int) -> bool:
        """Return True if a lane does."""
        return lane in self._frames

    def beside(self, lane: int, *, is_needed: bool) -> int:
        """Return the lane for frames that lie inside one of the same framework on a lane of frames: it is made where it
        is needed. The lane itself where there are too many.
        """
        inner = self._frames[lane]
        if inner >= 0 or not is_needed:
            return inner if inner >= 0 else lane
        if len(self._lanes) < MOST_LANES:
            self._frames[lane] = len(self._lanes)
            self._lanes.append((*self._lanes[lane][:7], INNER_FRAMES))
        else:
            self._frames[lane] = lane
        return self._frames[lane]

    def rows(self) -> list[tuple[int, Lane]]:
        """Return all, each with its number."""
        return list(enumerate(self._lanes))


def of_stream(title: str, stream: int) -> str:
    """Return the title of a lane that is beside a stream: "waits, stream 7", "waits" where no stream is told (-1)."""
    return f"{title}, stream {stream}" if stream >= 0 else title


def _kept(kind: LaneKind, process: str, pid: int, thread: str, tid: int, device: int, stream: int, title: str) -> Lane:
    """Return the properties of a lane as they are kept: texts that end, numbers that fit."""
    pid, tid, stream = _bounded(pid), _bounded(tid), _bounded(stream)
    return (kind, process[:200], pid, thread[:200], tid, device if abs(device) < 1 << 31 else -1, stream, title[:200])


def _bounded(number: int) -> int:
    """Return an int64: identifiers that processes have are smaller, those in a hostile file need not be."""
    return number if -(1 << 63) <= number < 1 << 63 else -1
