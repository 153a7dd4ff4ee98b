"""Who is told: the channels of a rule, and those of people who subscribed to what the incident is about."""

from collections.abc import Iterator

from jobs.accounts.access import role
from jobs.models import AlertChannel, AlertIncident, AlertSubscription, Membership, RunWatch

_RANK = {"info": 0, "warning": 1, "critical": 2}


def channels_for(incident: AlertIncident) -> Iterator[int]:
    """Yield the channels, by number, that are told of the incident now."""
    yield from incident.rule.channels.values_list("pk", flat=True)
    if incident.project_id is None:
        rows = AlertSubscription.objects.filter(is_console=True)
    else:
        rows = AlertSubscription.objects.filter(project_id=incident.project_id)
    for subscription in rows.select_related("user", "project").prefetch_related("channels"):
        if _RANK[incident.severity] < _RANK[subscription.severity] or not _is_about(subscription, incident):
            continue
        if role(subscription.user, subscription.project) is not None:
            yield from (channel.pk for channel in subscription.channels.all())


def _is_about(subscription: AlertSubscription, incident: AlertIncident) -> bool:
    run = incident.run
    if run is None or subscription.runs == "all":
        return True
    if run.created_by_id == subscription.user_id or run.attempts.filter(created_by=subscription.user_id).exists():
        return True  # also who resumed it
    return subscription.runs == "watched" and RunWatch.objects.filter(user=subscription.user_id, run=run).exists()


def may_receive(channel: AlertChannel, incident: AlertIncident) -> bool:
    """Return whether the channel's owner may see the incident by now: people leave projects, and accounts end."""
    if channel.owner_id is None:
        return channel.project_id in (None, incident.project_id)
    held = Membership.objects.filter(user_id=channel.owner_id, user__is_active=True)
    return held.exists() if incident.project_id is None else held.filter(project=incident.project_id).exists()
