"""The time zone in which a person reads: that of the browser, which the pages' script keeps in a cookie."""

from datetime import UTC, tzinfo
from zoneinfo import ZoneInfo

from django.http import HttpRequest

COOKIE = "pitwall_zone"
MAX_LENGTH = 64  # the longest name there is has 32


def time_zone(request: HttpRequest | None) -> tzinfo:
    """Return the time zone that the request's browser is in; UTC where it says none, or none that is known here."""
    name = request.COOKIES.get(COOKIE, "") if request is not None else ""
    if not 0 < len(name) <= MAX_LENGTH:
        return UTC
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, KeyError):  # no such zone, or a name that leads out of the folder of zones
        return UTC
