"""One clock for all sources: Unix time in ns, as int64.

Two tools that recorded the same moment on one machine agree within 0.2 ms, the error of their own conversions.
"""

from decimal import Decimal, InvalidOperation


def of_microseconds(value: float | str, base: int = 0) -> int:
    """Return Unix ns of `value` us after `base` [Unix ns]: Chrome traces of torch, with `baseTimeNanoseconds`.

    A float64 is exact to the ns below 8.8e12 us (100 days), of 1e15 us to 0.13 us; a text always is. Raises: ValueError
    for NaN and for a text that is no number, OverflowError for infinity.
    """
    if isinstance(value, str):
        digits = value[:-4] + value[-3:] if len(value) < 22 and value[-4:-3] == "." else ""
        if digits.isdigit() and digits.isascii():
            return int(digits) + base  # as torch writes them
        try:
            number = Decimal(value[:40])
        except InvalidOperation as error:
            raise ValueError(f"{value[:40]!r} is no time.") from error
        if not number.is_finite() or number.adjusted() > 18:
            raise ValueError(f"{value[:40]!r} is no time.")
        return int(number.scaleb(3).to_integral_value()) + base
    whole_us = int(value)
    return whole_us * 1000 + round((value - whole_us) * 1000) + base


def of_nsys(start: int, session: int) -> int:
    """Return Unix ns of an event `start` ns after the session began at `session` (utcEpochNs of a report)."""
    return start + session
