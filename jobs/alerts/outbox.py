"""The outbox: each event of an incident once for each channel, whoever is killed on the way.

A message is a row before anything is sent, in the transaction of its event. A worker claims it for LEASE, and marks it
as handed over right before the first byte leaves. What a killed worker leaves is claimed again when the lease is over:
if it was not handed over, nobody has it; if it was, the receiver may have it, and gets it again under the same key,
marked as a repeat (docs/operate/alerts.md).
"""

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Literal

from celery import shared_task
from django.db import DatabaseError, transaction
from django.db.models import F, Q
from django.utils import timezone
from kombu.exceptions import OperationalError

from jobs.accounts.sealing import SealBroken, unseal
from jobs.alerts.channels.channel import ChannelAddress, channel_plugin
from jobs.alerts.content import content_of
from jobs.alerts.handing import Handed, NotDelivered
from jobs.alerts.recipients import channels_for, may_receive
from jobs.models import AlertIncident, AlertMessage, AlertMute

log = logging.getLogger(__name__)

LEASE = timedelta(seconds=90)  # longer than any channel takes: 10 s to connect, 20 s to send and be answered
MAX_TRIES = 12  # over about eight hours
FIRST_WAIT = timedelta(seconds=10)
LONGEST_WAIT = timedelta(hours=1)
WORKER_TIME = timedelta(seconds=20)  # what a worker gets to take a due message before the reconciler sends it
ASK_AGAIN = timedelta(seconds=60)


def tell(
    incident: AlertIncident, event: Literal["opened", "resolved"], *, now: datetime, mutes: list[AlertMute]
) -> None:
    """Put an event of an incident into the outbox, within the caller's transaction; not while it is muted.

    That it is resolved is told where it was told that it is open.
    """
    if any(mute.is_about(incident) for mute in mutes):
        return
    if event == "opened":
        if not AlertIncident.objects.filter(pk=incident.pk, told_at=None).update(told_at=now):
            return
        channels = set(channels_for(incident))
    else:
        channels = set(incident.messages.filter(event="opened").values_list("channel_id", flat=True))
    for channel_id in sorted(channels):
        message, is_new = AlertMessage.objects.get_or_create(
            incident=incident, event=event, channel_id=channel_id, defaults={"created_at": now, "next_at": now}
        )
        if is_new:
            transaction.on_commit(partial(ask_worker, message.pk))


@shared_task(name="jobs.alerts.deliver")
def deliver_task(*, message_id: int) -> None:
    """Send a message."""
    deliver(message_id)


def ask_worker(message_id: int) -> None:
    """Let a worker send the message; while the broker is away the reconciler does."""
    try:
        deliver_task.apply_async(kwargs={"message_id": message_id}, retry=False)
    except (OperationalError, OSError) as error:
        log.warning("the broker is away, an alert is left to the reconciler: %s", error)


def deliver(message_id: int) -> bool:
    """Send a message that is due; False if there is nothing to do, as another worker has it or it is out.

    Never raises for a receiver: what it answered is kept with the message, which is tried again or has failed.
    """
    lease = _claim(message_id, timezone.now())
    if lease is None:
        return False
    message = AlertMessage.objects.select_related(
        "channel", "incident__run", "incident__project", "incident__rule"
    ).get(pk=message_id)
    held = AlertMessage.objects.filter(pk=message_id, state="sending", lease_until=lease)

    def hand_over() -> None:
        # Asked anew: whoever stood still until its lease was over must not send what another has sent meanwhile.
        now = timezone.now()
        if now >= lease or not held.update(handed_at=now):
            raise NotDelivered("another process sends it", is_final=True)

    outcome = _send(message, hand_over)
    now = timezone.now()
    changes: dict[str, object] = {"state": outcome.state, "answer": outcome.answer[:500], "lease_until": None}
    if outcome.state == "sent":
        changes["sent_at"] = now
    else:
        changes["next_at"] = now + outcome.wait
        if not outcome.may_have_arrived:
            changes["handed_at"] = None
    held.update(**changes)
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outcome:
    """What became of one try."""

    state: str
    answer: str
    wait: timedelta = timedelta(0)
    may_have_arrived: bool = False


def _claim(message_id: int, now: datetime) -> datetime | None:
    """Take the message for LEASE; None if it is not due or somebody holds it."""
    lease = now + LEASE
    due = AlertMessage.objects.filter(pk=message_id, state="pending", next_at__lte=now)
    left = AlertMessage.objects.filter(pk=message_id, state="sending", lease_until__lt=now)
    taken = {"state": "sending", "lease_until": lease, "tries": F("tries") + 1}
    is_repeat = Q(handed_at__isnull=False)
    for rows in (due, left):
        if rows.filter(is_repeat).update(**taken, is_repeat=True) or rows.filter(~is_repeat).update(**taken):
            return lease
    return None


def _send(message: AlertMessage, hand_over: Handed) -> _Outcome:
    """Try once."""
    if not may_receive(message.channel, message.incident):
        return _Outcome(state="failed", answer="its owner may not see this alert any more")
    try:
        plugin = channel_plugin(message.channel.kind)
        to = ChannelAddress(shown=message.channel.address, secrets=unseal(message.channel.sealed))
        answer = plugin.send(content_of(message), to, hand_over)
        return _Outcome(state="sent", answer=answer)
    except SealBroken as error:
        return _Outcome(state="failed", answer=str(error))
    except NotDelivered as error:
        is_over = error.is_final or message.tries >= MAX_TRIES
        return _Outcome(
            state="failed" if is_over else "pending",
            answer=str(error),
            wait=_wait(message.tries, error.retry_after),
            may_have_arrived=error.may_have_arrived,
        )
    except DatabaseError:
        raise  # the lease brings it back
    except Exception as error:
        log.exception("an alert could not be sent")
        return _Outcome(state="failed", answer=f"the console could not send it: {type(error).__name__}")


def _wait(tries: int, requested: float | None) -> timedelta:
    """Return how long to wait after so many tries: 10 s, 30 s, 90 s ... an hour, or as the receiver asked."""
    backed_off: timedelta = FIRST_WAIT * 3 ** min(tries - 1, 10)
    return min(LONGEST_WAIT, max(backed_off, timedelta(seconds=requested or 0)))


class Sweeper:
    """Finds what is due and asks a worker for it; what no worker takes within WORKER_TIME it sends itself."""

    def __init__(self) -> None:
        self._asked: dict[int, datetime] = {}

    def sweep(self, now: datetime) -> None:
        """Do one pass; sends at most one message itself, so that a slow receiver holds up little."""
        due = Q(state="pending", next_at__lte=now) | Q(state="sending", lease_until__lt=now)
        rows = list(
            AlertMessage.objects.filter(due).order_by("next_at").values_list("pk", "next_at", "lease_until")[:200]
        )
        self._asked = {pk: at for pk, at in self._asked.items() if now - at < ASK_AGAIN}
        has_sent = False
        for pk, next_at, lease_until in rows:
            if pk not in self._asked:
                self._asked[pk] = now
                ask_worker(pk)
            elif not has_sent and now - max(lease_until or next_at, next_at) >= WORKER_TIME:
                has_sent = deliver(pk)


def messages_of(incidents: Iterable[AlertIncident]) -> list[AlertMessage]:
    """Return what went out, or is to, about these incidents, oldest first."""
    rows = AlertMessage.objects.filter(incident__in=[incident.pk for incident in incidents])
    return list(rows.select_related("channel").order_by("pk"))
