"""What keeps the console from storing what runs report, as a sentence for people."""

import time
from dataclasses import dataclass
from functools import cache

import redis
from django.conf import settings
from django.utils.translation import gettext as _

from console.labels.numbers import duration
from jobs.telemetry.streams import IngestStatus, client, ingest_status


@dataclass(slots=True, kw_only=True)
class Silence:
    """Since when this process has not seen the ingest process report, in Unix seconds: at first since its own start.

    Redis forgets reports when it is emptied; the next one comes within a second, so the gap alone means nothing.
    """

    since: float
    was_seen: bool = False

    def observe(self, status: IngestStatus) -> IngestStatus:
        """Return the status, as of the newest report known if Redis has none."""
        if status.seen_at:
            self.since, self.was_seen = status.seen_at, True
            return status
        return IngestStatus(seen_at=self.since, trouble=status.trouble, num_waiting=status.num_waiting)


_SILENCE = Silence(since=time.time())


def ingest_problem(*, now: float | None = None, silence: Silence = _SILENCE) -> str:
    """Return the sentence; "" while all is well. `now`, in Unix seconds, and `silence` are given by tests."""
    try:
        status = silence.observe(ingest_status(_client(settings.REDIS_URL)))
    except redis.RedisError:
        return _(
            "Redis does not answer, so pages do not update. Training goes on: runners keep what they measure and hand "
            "it in when it is back."
        )
    now = time.time() if now is None else now
    if not status.is_alive(now=now):
        since = _("for %(time)s") % {"time": duration(now - status.seen_at)} if silence.was_seen else _("yet")
        return _(
            "The ingest process has not reported %(since)s, so pages do not update. Training goes on: runners keep "
            "what they measure. Start it again with “manage.py ingest”."
        ) % {"since": since}
    if status.trouble:
        return _(
            "What runs report cannot be stored: %(trouble)s. Training goes on: runners keep it and hand it in later."
        ) % {"trouble": " ".join(status.trouble.split()).rstrip(".")}
    return ""


@cache
def _client(url: str) -> redis.Redis:
    return client(url)
