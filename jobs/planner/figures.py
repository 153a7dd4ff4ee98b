"""Estimates in words as everybody says them: 39–97 s, 15–38 h, 612 GiB. No false digits."""

from jobs.catalog.sentence import Sentence
from jobs.planner.result import Interval

_UNITS = (("ms", 1e-3, 1.0), ("s", 1.0, 300.0), ("min", 60.0, 5400.0), ("h", 3600.0, 259_200.0))
_DAY = 86_400


def span(value: Interval) -> str:
    """Return an interval with as many decimals as tell its ends apart, two at most; one number where they are equal."""
    low, high = ends(value.low, value.high)
    return low if low == high else f"{low}–{high}"


def ends(low: float, high: float) -> tuple[str, str]:
    """Return both ends of an interval, as span does."""
    digits = 0 if high >= 20 else 1 if high >= 2 else 2
    return f"{low:,.{digits}f}", f"{high:,.{digits}f}"


def seconds_span(value: Interval) -> str:
    """Return an interval of seconds in the unit that suits it."""
    for unit, seconds, most in _UNITS:
        if value.high < most:
            return f"{span(value.scaled(1 / seconds))} {unit}"
    return Sentence("{days} days", days=span(value.scaled(1 / _DAY)))


def size(num_bytes: float) -> str:
    """Return bytes in binary units, as the pages' tables say them: 0.8 GiB, 12 GiB, 1.4 TiB."""
    count = num_bytes / (1 << 30)
    if count >= 1024:
        return f"{count / 1024:,.1f} TiB"
    return f"{count:,.{1 if count < 10 else 0}f} GiB"
