"""One clock for all sources: Unix time in ns, as int64.

Two tools that recorded the same moment on one machine agree within 0.2 ms, the error of their own conversions.
"""

SENSIBLE = 946_684_800 * 10**9
"""The year 2000 [Unix ns]: what lies before it was counted from something else, mostly from the machine's start."""


def of_microseconds(value: float, base: int = 0) -> int:
    """Return Unix ns of `value` us after `base` [Unix ns]: Chrome traces of torch, with `baseTimeNanoseconds`.

    A float64 of 1e15 us is exact to 0.13 us. Raises: ValueError for NaN, OverflowError for infinity.
    """
    return round(value * 1000) + base


def of_nsys(start: int, session: int) -> int:
    """Return Unix ns of an event `start` ns after the session began at `session` (utcEpochNs of a report)."""
    return start + session
