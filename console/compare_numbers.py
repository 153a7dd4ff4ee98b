"""Numbers of a comparison as people read them: values with their unit, differences with their sign."""

import math

from django.utils.translation import gettext as _


def value_text(value: float | None, unit: str) -> str:
    """Return a metric's value with its unit, as charts write it: 0.812, 15.6 s, 37.2 %, 118.2 GiB; — without one."""
    if value is None:
        return "—"
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "∞" if value > 0 else "−∞"
    if unit == "share":
        return f"{_trimmed(value * 100, 3)} %"
    if unit == "%":
        return f"{_trimmed(value, 3)} %"
    if unit == "bytes":
        return _bytes(value)
    if unit == "s":
        return _seconds(value)
    if unit == "tok/s":
        return f"{_short(value)} tok/s"
    return _number(value)


def difference_text(value: float, unit: str) -> str:
    """Return a difference with its sign: +0.071, −2.3 s, +1.2 pt (percentage points)."""
    if value == 0:
        return "±0"
    text = f"{_trimmed(abs(value) * 100, 3)} pt" if unit == "share" else value_text(abs(value), unit)
    return f"{'+' if value > 0 else '−'}{text}"


def half_text(value: float, unit: str) -> str:
    """Return half the width of an interval: ± 0.012."""
    text = f"{_trimmed(abs(value) * 100, 2)} pt" if unit == "share" else value_text(abs(value), unit)
    return f"± {text}"


def gap_text(difference: float, half: float, unit: str) -> tuple[str, str]:
    """Return a difference and half its interval with the digits that the interval leaves: ("−0.001", "± 0.022")."""
    scale, word = (100, " pt") if unit == "share" else (1, f" {unit}" if unit in ("s", "%", "tok/s") else "")
    size = abs(half) * scale
    if not size:
        return difference_text(difference, unit), half_text(half, unit)
    digits = 1 - math.floor(math.log10(size))
    if digits > 5:
        return difference_text(difference, unit), half_text(half, unit)
    shown = round(difference * scale, digits)
    sign = "+" if shown > 0 else "−" if shown < 0 else "±"
    places = max(0, digits)
    return f"{sign}{abs(shown):,.{places}f}{word}", f"± {round(size, digits):,.{places}f}{word}"


def share_text(share: float) -> str:
    """Return a relative difference with its sign: −34.6 %."""
    size = abs(share) * 100
    digits = 1 if size < 100 else 0
    if round(size, digits) == 0:
        return "±0 %"
    return f"{'+' if share > 0 else '−'}{size:,.{digits}f} %"


def ratio_text(share: float) -> str:
    """Return a relative difference, as a factor from three times as much on: +34.6 %, ×225."""
    return f"×{share + 1:,.0f}" if share >= 99 else f"×{times_text(share + 1)}" if share >= 2 else share_text(share)


def percent_text(share: float, half: float | None = None) -> str:
    """Return a share without its sign, with half its interval where that is given: 7 %, 7.0 % ± 2.1 %."""
    if half is None:
        return f"{abs(share) * 100:.0f} %"
    digits = 1 if half < 0.1 else 0
    return f"{abs(share) * 100:.{digits}f} % ± {half * 100:.{digits}f} %"


def times_text(ratio: float) -> str:
    """Return a ratio as a factor: 1.53."""
    return f"{ratio:.2f}" if ratio < 10 else f"{ratio:,.1f}"


def _number(value: float) -> str:
    size = abs(value)
    if size == 0:
        return "0"
    if size < 1e-3:
        text = f"{size:.1e}".replace("e-0", "e-").replace("e-", "e−")
    elif size < 0.1:
        text = f"{size:.4f}"
    elif size < 1:
        text = f"{size:.3f}"
    elif size < 10:
        text = f"{size:.2f}"
    elif size < 1000:
        text = f"{size:.0f}" if size == round(size) else f"{size:.1f}"
    elif size < 1e7:
        text = f"{size:,.0f}"
    else:
        text = f"{size:.2e}".replace("e+0", "e").replace("e+", "e")
    return f"−{text}" if value < 0 else text


def _trimmed(value: float, digits: int) -> str:
    if value == 0:
        return "0"
    text = f"{abs(value):.{digits}g}"
    if "e" in text:
        text = f"{float(text):,.0f}" if abs(value) >= 1 else text.replace("e-0", "e−").replace("e-", "e−")
    return f"−{text}" if value < 0 else text


def _short(value: float) -> str:
    size = abs(value)
    if size >= 1e6:
        return f"{value / 1e6:,.1f}M"
    if size >= 1e4:
        return f"{value / 1e3:,.1f}k"
    return f"{value:,.0f}" if size >= 100 else _number(value)


def _bytes(value: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024:
            return f"{value:,.0f} {unit}" if unit == "B" else f"{value:,.1f} {unit}"
        value /= 1024
    return _("%(value)s TiB") % {"value": f"{value:,.1f}"}


def _seconds(value: float) -> str:
    size = abs(value)
    if size == 0:
        return "0 s"
    if size < 1e-3:
        return f"{value * 1e6:.0f} µs"
    if size < 0.1:
        return f"{value * 1e3:.{1 if size < 0.01 else 0}f} ms"
    if size < 10:
        return f"{value:.2f} s"
    if size < 100:
        return f"{value:.1f} s"
    if size < 1000:
        return f"{value:,.0f} s"
    minutes = round(value / 60)
    return f"{minutes:,} min" if minutes < 60 else f"{minutes // 60:,} h {minutes % 60} min"
