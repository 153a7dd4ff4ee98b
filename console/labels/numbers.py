"""Numbers as pages write them everywhere: counts, measurements, durations, bytes."""

from datetime import timedelta
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import ngettext


def grouped(value: Any) -> str:
    """Write a whole number with thin groups: 12,480; a missing one as a dash."""
    return "—" if value is None else f"{int(value):,}"


def figure(value: Any) -> str:
    """Write a measured number with four significant digits; a missing one as a dash, a minus as a true minus."""
    if isinstance(value, str) and value:  # NaN and the infinities travel as words
        return value.replace("-", "−")
    if value is None or isinstance(value, bool) or not isinstance(value, (int, float)):
        return "—"
    if value == 0:
        return "0"
    size = abs(value)
    if size >= 10_000:
        text = f"{value / 1000:,.1f}k" if size < 1_000_000 else f"{value / 1_000_000:,.1f}M"
    elif size < 0.001:
        text = f"{value:.2e}".replace("e-0", "e-")
    else:
        text = f"{value:.4g}" if size < 1000 else f"{value:,.0f}"
    return text.replace("-", "−", 1) if value < 0 else text


def duration(seconds: Any) -> str:
    """Write a duration as people read it: 42 s, 12 min, 3 h 05 min, 2 d 4 h."""
    if seconds is None:
        return "—"
    if isinstance(seconds, timedelta):
        seconds = seconds.total_seconds()
    whole = max(0, round(float(seconds)))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min"
    if whole < 86_400:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 86_400} d {whole % 86_400 // 3600} h"


def clock(seconds: Any) -> str:
    """Write a duration for a column: 0:42 is 42 seconds, 12:05 minutes, 3:05:12 hours."""
    if seconds is None:
        return "—"
    whole = max(0, round(float(seconds)))
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02d}"
    return f"{whole // 3600}:{whole % 3600 // 60:02d}:{whole % 60:02d}"


def interval(seconds: Any) -> str:
    """Write an estimate as the interval it is: (1320, 1500) seconds are 22–25 min."""
    if not seconds:
        return "—"
    low, high = seconds
    if high < 90:
        return f"{max(0, round(low))}–{round(high)} s" if round(low) != round(high) else f"{round(high)} s"
    unit, size = ("min", 60) if high < 5400 else ("h", 3600)
    digits = 0 if unit == "min" else 1
    texts = [f"{value / size:.{digits}f}" for value in (low, high)]
    return f"{texts[0]}–{texts[1]} {unit}" if texts[0] != texts[1] else f"{texts[0]} {unit}"


def size(num_bytes: Any) -> str:
    """Write bytes in binary units: 118.2 GiB."""
    if num_bytes is None:
        return "—"
    value = float(num_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:,.0f} {unit}" if unit == "B" else f"{value:,.1f} {unit}"
        value /= 1024
    return _("%(value)s TiB") % {"value": f"{value:,.1f}"}


def growth(bytes_per_day: Any) -> str:
    """Write a growth with its sign: +1.2 GiB, −300.0 MiB; one that was not measured as a dash."""
    if bytes_per_day is None:
        return "—"
    text = size(abs(float(bytes_per_day)))
    return f"+{text}" if bytes_per_day > 0 else f"−{text}" if bytes_per_day < 0 else text


def about_days(days: Any) -> str:
    """Write how long is left: about 12 days, less than a day."""
    if days is None:
        return "—"
    if days < 1:
        return _("less than a day")
    whole = round(days)
    return ngettext("about %(n)s day", "about %(n)s days", whole) % {"n": whole}
