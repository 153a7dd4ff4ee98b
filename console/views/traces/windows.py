"""Windows of a trace that people name by their distance from its beginning, in ms."""

import math
from collections.abc import Mapping

from django.utils.translation import gettext as _

from jobs.models import Trace
from jobs.traces.files import ready_layers

_MOST_MS = 1e10


class NoWindow(ValueError):
    """What was given is no window; the sentence says why."""


def begin_of(trace: Trace) -> int:
    """Return when the recording of a trace begins, in Unix ns; 0 while no file is ready."""
    begins = [layer.facts.get("begin") for layer in ready_layers(trace)]
    return min((begin for begin in begins if isinstance(begin, int)), default=0)


def window_in_ms(texts: Mapping[str, str], trace: Trace, prefix: str) -> tuple[int, int] | None:
    """Return the window in Unix ns that the fields `<prefix>from_ms` and `<prefix>to_ms` name; None without any.

    Raises: NoWindow.
    """
    first, last = texts.get(f"{prefix}from_ms", "").strip(), texts.get(f"{prefix}to_ms", "").strip()
    if not first and not last:
        return None
    begin, end = _number(_("From"), first or "0"), _number(_("To"), last) if last else math.inf
    if end <= begin:
        text = _("To: %(end)s ms is not after %(begin)s ms. The window of %(name)s ends after it begins.")
        raise NoWindow(text % {"end": last, "begin": first or "0", "name": trace.name})
    origin = begin_of(trace)
    return origin + round(begin * 1e6), origin + round(min(end, _MOST_MS) * 1e6)


def _number(field: str, text: str) -> float:
    try:
        number = float(text[:30])
    except ValueError:
        number = math.nan
    if not 0 <= number <= _MOST_MS:
        wrong = _("%(field)s: %(text)r is no time. Give ms from the beginning of the recording, 0 or more.")
        raise NoWindow(wrong % {"field": field, "text": text[:30]})
    return number
