"""Clocks of a Perfetto trace: what a packet's timestamp means, in Unix ns where the trace tells of the time of day.

Clocks below 64 are the system's. Those from 64 on belong to a sequence of packets: they have a unit, may count from the
packet before, and are joined to a clock of the system by a snapshot (perfetto.dev/docs/concepts/clock-sync).
"""

from dataclasses import dataclass

from profiling.trace.formats.protobuf import fields, message, number

REALTIME, BOOTTIME = 1, 6
_FIRST_OF_SEQUENCES = 64


@dataclass(slots=True, kw_only=True)
class _Clock:
    """A clock of a sequence: `base` of the system's clock at its own `zero`; `last` is where it stands."""

    unit: int
    is_incremental: bool
    zero: int
    base: int
    last: int


class Clocks:
    """The clocks of one trace while it is read."""

    def __init__(self) -> None:
        self.has_time_of_day = False
        self._offsets: dict[int, int] = {}  # of a system's clock to the time of day, or else to BOOTTIME
        self._own: dict[tuple[int, int], _Clock] = {}

    def snapshot(self, data: memoryview, sequence: int) -> None:
        """Take a ClockSnapshot of a packet of this sequence. Raises: Damaged."""
        read: dict[int, tuple[int, bool, int]] = {}
        for field, _, value in fields(data):
            if field == 1:
                clock = at = 0
                is_incremental, unit = False, 1
                for inner, _, about in fields(message(value)):
                    if inner == 1:
                        clock = number(about)
                    elif inner == 2:
                        at = number(about)
                    elif inner == 3:
                        is_incremental = bool(number(about))
                    elif inner == 4:
                        unit = max(number(about), 1)
                read[clock] = (at, is_incremental, unit)
        if BOOTTIME not in read and not any(clock < _FIRST_OF_SEQUENCES for clock in read):
            return
        if not self._offsets:
            target = REALTIME if REALTIME in read else next(c for c in (BOOTTIME, *sorted(read)) if c in read)
            self.has_time_of_day = target == REALTIME
            self._offsets = {c: read[target][0] - read[c][0] for c in read if c < _FIRST_OF_SEQUENCES}
        system = next((c for c in (BOOTTIME, *sorted(read)) if c in read and c in self._offsets), None)
        if system is None:
            return
        for clock, (at, is_incremental, unit) in read.items():
            if clock >= _FIRST_OF_SEQUENCES:
                base = read[system][0] + self._offsets[system]
                self._own[sequence, clock] = _Clock(
                    unit=unit, is_incremental=is_incremental, zero=at * unit, base=base, last=at * unit
                )

    def read(self, at: int, clock: int, sequence: int) -> int | None:
        """Return a timestamp in ns of the trace's clock; None for a clock that nothing was told of."""
        if clock < _FIRST_OF_SEQUENCES:
            return at + self._offsets.get(clock, self._offsets.get(BOOTTIME, 0))
        own = self._own.get((sequence, clock))
        if own is None:
            return None
        own.last = own.last + at * own.unit if own.is_incremental else at * own.unit
        return own.base + own.last - own.zero
