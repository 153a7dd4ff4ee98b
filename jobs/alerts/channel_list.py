"""The channels of a project, of a person and of the console: made, tried and deleted. What is secret stays here."""

import secrets as random
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone
from django.utils.translation import gettext as _

from jobs.accounts.audit import record
from jobs.accounts.sealing import SealBroken, seal, unseal
from jobs.alerts.channels.channel import ChannelAddress, channel_kinds, channel_plugin
from jobs.alerts.content import content_of_test
from jobs.alerts.handing import NotDelivered
from jobs.alerts.kinds import AlertRefused, checked_name
from jobs.models import AlertChannel, AuditEvent, Project

MAX_CHANNELS = 20  # of a project or a person
TEST_EVERY = timedelta(seconds=10)  # of a channel
MAX_TESTS, TESTS_WITHIN = 10, timedelta(minutes=5)  # of a person: nobody writes to strangers by the hundred


@dataclass(frozen=True, slots=True, kw_only=True)
class TestAnswer:
    """What the receiver said to a test."""

    __test__ = False  # no test class of pytest's

    is_delivered: bool
    answer: str


def channels_among(rows: QuerySet[AlertChannel], numbers: Collection[int]) -> QuerySet[AlertChannel] | None:
    """Return the channels of these numbers, None if one of them is not among `rows`."""
    wanted = set(numbers)
    if len(wanted) > MAX_CHANNELS or not all(0 < number < 1 << 63 for number in wanted):
        return None  # a database takes no integer of more than 64 bits
    channels = rows.filter(pk__in=wanted)
    return channels if channels.count() == len(wanted) else None


def make_channel(
    *,
    kind: str,
    name: str,
    address: str,
    actor: AbstractBaseUser,
    project: Project | None = None,
    owner: AbstractBaseUser | None = None,
) -> tuple[AlertChannel, str]:
    """Return a new channel of a project or a person, and its signing secret ("" where it has none), shown this once.

    Raises: AlertRefused. The caller has checked the role.
    """
    if kind not in channel_kinds():
        text = _("%(kind)r is no kind of channel. Use one of %(known)s.")
        raise AlertRefused("kind", text % {"kind": kind[:60], "known": ", ".join(channel_kinds())})
    name = checked_name(name)
    rows = AlertChannel.objects.filter(project=project, owner_id=owner.pk if owner else None)
    if rows.count() >= MAX_CHANNELS:
        raise AlertRefused("name", _("There are %(most)s channels already. Delete one first.") % {"most": MAX_CHANNELS})
    if rows.filter(name=name).exists():
        raise AlertRefused("name", _("There is a channel %(name)r already. Choose another name.") % {"name": name})
    plugin = channel_plugin(kind)
    if problem := plugin.unavailable():
        raise AlertRefused("kind", problem)
    checked = plugin.check(address)
    with transaction.atomic():
        channel = AlertChannel.objects.create(
            project=project,
            owner_id=owner.pk if owner else None,
            kind=kind,
            name=name,
            address=checked.shown,
            sealed=seal(checked.secrets),
            created_by_id=actor.pk,
        )
        after = {"kind": kind, "name": name, "address": checked.shown, "project": project.slug if project else None}
        record(
            actor=actor,
            verb="alert_channel.create",
            object_type="alert_channel",
            object_id=str(channel.pk),
            label=channel.name,
            project=channel.project,
            after=after,
        )
    return channel, checked.secrets.get("signing_secret", "")


def delete_channel(channel: AlertChannel, *, actor: AbstractBaseUser) -> None:
    """Delete a channel; what was to go there is forgotten."""
    before = {"kind": channel.kind, "name": channel.name, "address": channel.address}
    with transaction.atomic():
        record(
            actor=actor,
            verb="alert_channel.delete",
            object_type="alert_channel",
            object_id=str(channel.pk),
            label=channel.name,
            project=channel.project,
            before=before,
        )
        channel.delete()


def send_test(channel: AlertChannel, *, actor: AbstractBaseUser, now: datetime) -> TestAnswer:
    """Send a test now, and return what the receiver answered.

    Raises: AlertRefused within ten seconds of the last, and after ten of the person within five minutes, whatever
    channels they made and deleted meanwhile.
    """
    sent = AuditEvent.objects.filter(actor_name=actor.get_username(), verb="alert_channel.test")
    if sent.filter(at__gt=timezone.now() - TESTS_WITHIN).count() >= MAX_TESTS:
        raise AlertRefused("", _("You sent %(most)s tests within five minutes. Wait a little.") % {"most": MAX_TESTS})
    rested = AlertChannel.objects.filter(pk=channel.pk).filter(_rested(now))
    if not rested.update(tested_at=now):
        raise AlertRefused("", _("This channel was tested a moment ago. Wait ten seconds."))
    record(
        actor=actor,
        verb="alert_channel.test",
        object_type="alert_channel",
        object_id=str(channel.pk),
        label=channel.name,
        project=channel.project,
    )
    slug = channel.project.slug if channel.project else ""
    content = content_of_test(random.token_hex(16), now.isoformat(), slug)
    try:
        plugin = channel_plugin(channel.kind)
        to = ChannelAddress(shown=channel.address, secrets=unseal(channel.sealed))
        answer = plugin.send(content, to, lambda: None)
    except (NotDelivered, SealBroken) as error:
        return TestAnswer(is_delivered=False, answer=str(error)[:500])
    return TestAnswer(is_delivered=True, answer=answer[:500])


def _rested(now: datetime) -> Q:
    return Q(tested_at=None) | Q(tested_at__lt=now - TEST_EVERY)
