"""What keeps the console from storing what runs report, as a sentence for people."""

import time
from functools import cache

import redis
from django.conf import settings
from django.utils.translation import gettext as _

from console.templatetags.pitwall import duration
from jobs.streams import client, ingest_status


def ingest_problem(*, now: float | None = None) -> str:
    """Return the sentence; "" while all is well. `now`: Unix seconds, for tests."""
    try:
        status = ingest_status(_client(settings.REDIS_URL))
    except redis.RedisError:
        return _(
            "Redis does not answer, so pages stand still. Training goes on: runners keep what they measure and hand it "
            "in when it is back."
        )
    now = time.time() if now is None else now
    if not status.is_alive(now=now):
        since = _("for %(time)s") % {"time": duration(now - status.seen_at)} if status.seen_at else _("yet")
        return _(
            "The ingest process has not reported %(since)s, so pages stand still. Training goes on: runners keep what "
            "they measure. Start it again with “manage.py ingest”."
        ) % {"since": since}
    if status.trouble:
        return _(
            "What runs report cannot be stored: %(trouble)s. Training goes on: runners keep it and hand it in later."
        ) % {"trouble": " ".join(status.trouble.split()).rstrip(".")}
    return ""


@cache
def _client(url: str) -> redis.Redis:
    return client(url)
