"""What a person is sent of a project's incidents, over channels of their own; and the runs that they watch."""

from collections.abc import Collection

from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from jobs.accounts.audit import record
from jobs.alerts.channel_list import channels_among
from jobs.alerts.kinds import SEVERITIES, AlertRefused
from jobs.models import AlertChannel, AlertSubscription, Project, Run, RunWatch

RUNS: dict[str, Promise] = {
    "mine": gettext_lazy("my runs"),
    "watched": gettext_lazy("my runs and those I watch"),
    "all": gettext_lazy("all of the project"),
}


def subscription_of(user: AbstractBaseUser, project: Project) -> AlertSubscription:
    """Return what the person is sent of the project: as it is kept, or the defaults, without a channel."""
    stored = AlertSubscription.objects.filter(user=user.pk, project=project).first()
    return stored or AlertSubscription(user_id=user.pk, project=project)


def subscribe(
    *,
    user: AbstractBaseUser,
    project: Project,
    runs: str,
    severity: str,
    is_console: bool,
    channels: Collection[int],
) -> AlertSubscription:
    """Keep what the person wants; without a channel nothing is sent. Raises: AlertRefused."""
    if runs not in RUNS:
        raise AlertRefused("runs", _("%(given)r is not among mine, watched and all.") % {"given": runs[:60]})
    if severity not in SEVERITIES:
        raise AlertRefused(
            "severity", _("%(given)r is no severity. Use info, warning or critical.") % {"given": severity[:60]}
        )
    own = channels_among(AlertChannel.objects.filter(owner=user.pk), channels)
    if own is None:
        raise AlertRefused("channels", _("Use channels of your own. Admins send to those of the project by a rule."))
    with transaction.atomic():
        stored, _is_new = AlertSubscription.objects.update_or_create(
            user_id=user.pk, project=project, defaults={"runs": runs, "severity": severity, "is_console": is_console}
        )
        stored.channels.set(own)
        after = {"runs": runs, "severity": severity, "is_console": is_console, "channels": [one.name for one in own]}
        record(actor=user, verb="alert.subscribe", object_type="project", object_id=project.slug, after=after)
    return stored


def watch(run: Run, *, user: AbstractBaseUser, is_on: bool) -> None:
    """Watch a run, or no longer."""
    if is_on:
        RunWatch.objects.get_or_create(user_id=user.pk, run=run)
    else:
        RunWatch.objects.filter(user=user.pk, run=run).delete()
