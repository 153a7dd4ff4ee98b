"""Rules, channels and subscriptions: what opens an alert, and where it goes."""

from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.http import Http404, HttpRequest
from django.utils import timezone
from ninja import Router, Schema, Status

from console.api.alerts.schema import (
    AlertChannelIn,
    AlertChannelsOut,
    AlertRuleChange,
    AlertRuleIn,
    AlertRuleOut,
    AlertRulesOut,
    AlertSubscriptionIn,
    AlertSubscriptionOut,
    AlertTestOut,
    NewAlertChannelOut,
    channel_out,
    kinds_out,
    rule_out,
    subscription_out,
)
from console.api.problem import REFUSALS, RequestProblem
from console.api.visible import caller, project_for
from jobs.accounts.access import require_superuser, require_whole_account
from jobs.alerts.channel_list import delete_channel, make_channel, send_test
from jobs.alerts.channels.channel import channel_kinds
from jobs.alerts.kinds import KINDS, AlertRefused
from jobs.alerts.queries import rules_for
from jobs.alerts.rules import change_rule, delete_rule, make_rule
from jobs.alerts.subscriptions import subscribe, subscription_of
from jobs.models import AlertChannel, AlertRule, Project

router = Router(tags=["alerts"])
own = Router(tags=["alerts"])


def _given(body: Schema) -> dict[str, Any]:
    return {name: value for name, value in body.dict(exclude_unset=True).items() if value is not None}


def _refused(error: AlertRefused) -> RequestProblem:
    return RequestProblem(422, str(error), field=error.field)


@router.get("/{slug:project}/alert-rules", response={200: AlertRulesOut, **REFUSALS}, summary="Alert rules")
def list_alert_rules(request: HttpRequest, project: str) -> AlertRulesOut:
    """Return the rules of the project and of the console."""
    home = project_for(request, project)
    return AlertRulesOut(rules=[rule_out(rule) for rule in rules_for(home)], kinds=kinds_out())


@router.post("/{slug:project}/alert-rules", response={201: AlertRuleOut, **REFUSALS}, summary="Make an alert rule")
def create_alert_rule(request: HttpRequest, project: str, body: AlertRuleIn) -> Status[AlertRuleOut]:
    """Make a rule; admins only. Kinds that watch the console itself are for superusers."""
    home: Project | None = project_for(request, project, "admin")
    if body.kind in KINDS and KINDS[body.kind].is_console:
        require_superuser(request.user)
        home = None
    fields = _given(body)
    del fields["kind"]
    try:
        rule = make_rule(project=home, kind=body.kind, fields=fields, actor=caller(request))
    except AlertRefused as error:
        raise _refused(error) from error
    return Status(201, rule_out(rule))


@router.patch(
    "/{slug:project}/alert-rules/{int:rule_number}",
    response={200: AlertRuleOut, **REFUSALS},
    summary="Change an alert rule",
)
def change_alert_rule(request: HttpRequest, project: str, rule_number: int, body: AlertRuleChange) -> AlertRuleOut:
    """Change a rule, or switch it on or off; admins only, the console's own by superusers."""
    rule = rule_for(request, project, rule_number)
    try:
        return rule_out(change_rule(rule, fields=_given(body), actor=caller(request)))
    except AlertRefused as error:
        raise _refused(error) from error


@router.delete(
    "/{slug:project}/alert-rules/{int:rule_number}", response={204: None, **REFUSALS}, summary="Delete an alert rule"
)
def delete_alert_rule(request: HttpRequest, project: str, rule_number: int) -> Any:
    """Delete a rule with its incidents; those that come with the console can only be switched off."""
    rule = rule_for(request, project, rule_number)
    try:
        delete_rule(rule, actor=caller(request))
    except AlertRefused as error:
        raise RequestProblem(409, str(error)) from error
    return Status(204, None)


@router.get("/{slug:project}/alert-channels", response={200: AlertChannelsOut, **REFUSALS}, summary="Alert channels")
def list_alert_channels(request: HttpRequest, project: str) -> AlertChannelsOut:
    """Return where the project's rules may send to."""
    return _channels(project=project_for(request, project))


@router.post(
    "/{slug:project}/alert-channels", response={201: NewAlertChannelOut, **REFUSALS}, summary="Make an alert channel"
)
def create_alert_channel(request: HttpRequest, project: str, body: AlertChannelIn) -> Status[NewAlertChannelOut]:
    """Make a channel of the project; admins only."""
    return _make(body, actor=caller(request), project=project_for(request, project, "admin"))


@router.delete(
    "/{slug:project}/alert-channels/{int:channel_id}",
    response={204: None, **REFUSALS},
    summary="Delete an alert channel",
)
def delete_alert_channel(request: HttpRequest, project: str, channel_id: int) -> Any:
    """Delete a channel of the project; admins only."""
    home = project_for(request, project, "admin")
    delete_channel(channel_for(channel_id, project=home), actor=caller(request))
    return Status(204, None)


@router.post(
    "/{slug:project}/alert-channels/{int:channel_id}/test",
    response={200: AlertTestOut, **REFUSALS},
    summary="Send a test",
)
def test_alert_channel(request: HttpRequest, project: str, channel_id: int) -> AlertTestOut:
    """Send a test over a channel of the project, and return what the receiver said; admins only."""
    home = project_for(request, project, "admin")
    return _test(channel_for(channel_id, project=home), caller(request))


@router.get(
    "/{slug:project}/alert-subscription", response={200: AlertSubscriptionOut, **REFUSALS}, summary="Your subscription"
)
def read_alert_subscription(request: HttpRequest, project: str) -> AlertSubscriptionOut:
    """Return what you are sent of the project."""
    return subscription_out(subscription_of(caller(request), project_for(request, project)))


@router.put("/{slug:project}/alert-subscription", response={200: AlertSubscriptionOut, **REFUSALS}, summary="Subscribe")
def put_alert_subscription(request: HttpRequest, project: str, body: AlertSubscriptionIn) -> AlertSubscriptionOut:
    """Say what to send you of the project, over channels of your own."""
    home = project_for(request, project)
    try:
        return subscription_out(subscribe(user=caller(request), project=home, **body.dict()))
    except AlertRefused as error:
        raise _refused(error) from error


@own.get("/alert-channels", response={200: AlertChannelsOut, **REFUSALS}, summary="Your alert channels")
def list_own_alert_channels(request: HttpRequest) -> AlertChannelsOut:
    """Return your own channels."""
    require_whole_account(request.user)
    return _channels(owner=caller(request))


@own.post("/alert-channels", response={201: NewAlertChannelOut, **REFUSALS}, summary="Make a channel of your own")
def create_own_alert_channel(request: HttpRequest, body: AlertChannelIn) -> Status[NewAlertChannelOut]:
    """Make a channel of your own."""
    require_whole_account(request.user)
    return _make(body, actor=caller(request), owner=caller(request))


@own.delete("/alert-channels/{int:channel_id}", response={204: None, **REFUSALS}, summary="Delete a channel of yours")
def delete_own_alert_channel(request: HttpRequest, channel_id: int) -> Any:
    """Delete a channel of your own."""
    require_whole_account(request.user)
    delete_channel(channel_for(channel_id, owner=caller(request)), actor=caller(request))
    return Status(204, None)


@own.post(
    "/alert-channels/{int:channel_id}/test", response={200: AlertTestOut, **REFUSALS}, summary="Send yourself a test"
)
def test_own_alert_channel(request: HttpRequest, channel_id: int) -> AlertTestOut:
    """Send a test over a channel of your own, and return what the receiver said."""
    require_whole_account(request.user)
    return _test(channel_for(channel_id, owner=caller(request)), caller(request))


def rule_for(request: HttpRequest, project: str, rule_number: int) -> AlertRule:
    """Return a rule that the caller may change. Raises: Http404, NotAllowed."""
    home = project_for(request, project, "admin")
    rule = rules_for(home).filter(pk=rule_number).first() if rule_number < 1 << 63 else None
    if rule is None:
        raise Http404
    if rule.project_id is None:
        require_superuser(request.user)
    return rule


def channel_for(
    channel_id: int, *, project: Project | None = None, owner: AbstractBaseUser | None = None
) -> AlertChannel:
    """Return a channel of the project, or of the person. Raises: Http404."""
    assert project is not None or owner is not None
    rows = AlertChannel.objects.filter(project=project, owner_id=owner.pk if owner else None)
    channel = rows.filter(pk=channel_id).first() if channel_id < 1 << 63 else None
    if channel is None:
        raise Http404
    return channel


def _channels(*, project: Project | None = None, owner: AbstractBaseUser | None = None) -> AlertChannelsOut:
    rows = AlertChannel.objects.filter(project=project, owner_id=owner.pk if owner else None).order_by("name")
    return AlertChannelsOut(channels=[channel_out(channel) for channel in rows], kinds=list(channel_kinds()))


def _make(body: AlertChannelIn, *, actor: AbstractBaseUser, **whose: Any) -> Status[NewAlertChannelOut]:
    try:
        channel, secret = make_channel(kind=body.kind, name=body.name, address=body.address, actor=actor, **whose)
    except AlertRefused as error:
        raise _refused(error) from error
    return Status(201, NewAlertChannelOut(**channel_out(channel).dict(), signing_secret=secret))


def _test(channel: AlertChannel, actor: AbstractBaseUser) -> AlertTestOut:
    try:
        answer = send_test(channel, actor=actor, now=timezone.now())
    except AlertRefused as error:
        raise RequestProblem(409, str(error)) from error
    return AlertTestOut(is_delivered=answer.is_delivered, answer=answer.answer)
