"""Passwords sprayed over many names: an address that fails too often is locked, whatever the names, and it is told.

Axes counts failures of one name from one address. Here its counts of one address are added up, so nothing else is kept.
A right password from another address works all the while, and so do links and the provider.
"""

import logging
from datetime import datetime, timedelta
from ipaddress import ip_network

from axes.models import AccessAttempt
from django.conf import settings
from django.db.models import Count, Sum
from django.http import HttpRequest

from jobs.accounts.audit import record
from jobs.accounts.origin import origin

log = logging.getLogger(__name__)


def caller(request: HttpRequest | None = None) -> str | None:  # noqa: ARG001 (axes calls it with one)
    """Return whose failures are counted together; axes counts by it too.

    Of IPv6 it is the network of 64 bits: who has one has all of its addresses.
    """
    address = origin.get().ip
    if address is None or ":" not in address:
        return address
    return str(ip_network(f"{address}/64", strict=False).network_address)


def is_locked(*, now: datetime) -> bool:
    """Return True if so many passwords from this address were wrong lately that none is looked at."""
    address = caller()
    if address is None or not getattr(settings, "AXES_ENABLED", True):
        return False
    return _failures(address, now)[0] >= settings.ADDRESS_FAILURE_LIMIT


def note_failure(*, now: datetime) -> None:
    """Tell log and audit when the failure that axes has just counted is the one that locks the address."""
    address = caller()
    if address is None or not getattr(settings, "AXES_ENABLED", True):
        return
    num_failures, num_names = _failures(address, now)
    if num_failures < settings.ADDRESS_FAILURE_LIMIT:
        return
    log.warning(
        "%s wrong passwords for %s names from %s within %s minutes: sign-in by password is locked for that address",
        num_failures,
        num_names,
        address,
        settings.LOCKOUT_MINUTES,
    )
    after = {"failures": num_failures, "names": num_names, "minutes": settings.LOCKOUT_MINUTES}
    record(actor=None, verb="signin.locked", object_type="address", object_id=address, after=after)


def _failures(address: str, now: datetime) -> tuple[int, int]:
    """Return how many passwords were wrong, and for how many names."""
    since = now - timedelta(minutes=settings.LOCKOUT_MINUTES)
    lately = AccessAttempt.objects.filter(ip_address=address, attempt_time__gte=since)
    sums = lately.aggregate(failures=Sum("failures_since_start"), names=Count("username", distinct=True))
    return sums["failures"] or 0, sums["names"]
