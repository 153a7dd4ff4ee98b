"""Rules of alerts, channels, and what one is sent oneself."""

from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import path, reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_POST

from console.forms.alert_rule import rule_fields, rule_posted
from console.session import keep_once, take_once
from console.views.alerts.page import tabs_of
from console.views.frame import current_project, named_project, person
from jobs.accounts.access import require, require_superuser, require_whole_account, role
from jobs.alerts.channel_list import delete_channel, make_channel, send_test
from jobs.alerts.channels.channel import channel_kinds, channel_plugin
from jobs.alerts.kinds import KINDS, SEVERITIES, AlertRefused
from jobs.alerts.queries import rules_for
from jobs.alerts.rules import change_rule, delete_rule, make_rule
from jobs.alerts.subscriptions import RUNS, subscribe, subscription_of
from jobs.models import AlertChannel, AlertRule, Project


@require_GET
@never_cache
def rules(request: HttpRequest) -> HttpResponse:
    """Show rules and channels, and this once the signing secret of a webhook just made."""
    project = current_project(request)
    if project is None:
        return render(request, "home/no_project.html")
    require(request.user, project, "viewer")
    return _show(request, project, **take_once(request, "signing_secret", "secret_of"))


@require_POST
def new_rule(request: HttpRequest, project: str) -> HttpResponse:
    """Make a rule of the kind that the form is for."""
    home: Project = named_project(request, project, "admin")
    kind = KINDS.get(request.POST.get("kind", ""))
    if kind is None:
        raise Http404
    if kind.is_console:
        require_superuser(request.user)
    try:
        rule = make_rule(
            project=None if kind.is_console else home,
            kind=kind.id,
            fields=rule_posted(request.POST, kind),
            actor=person(request),
        )
    except AlertRefused as error:
        return _show(request, home, refused=error, refused_rule="new", new_kind=kind.id)
    messages.success(request, _("The rule %(name)s is on.") % {"name": rule.name})
    return _back(home)


@require_POST
def edit_rule(request: HttpRequest, project: str, rule_number: int) -> HttpResponse:
    """Change a rule, switch it on or off, or delete it, by `verb`."""
    home = named_project(request, project, "admin")
    rule = rules_for(home).filter(pk=rule_number).first() if rule_number < 1 << 63 else None
    if rule is None:
        raise Http404
    if rule.project_id is None:
        require_superuser(request.user)
    verb = request.POST.get("verb", "change")
    try:
        if verb == "delete":
            delete_rule(rule, actor=person(request))
        elif verb in ("on", "off"):
            change_rule(rule, fields={"is_enabled": verb == "on"}, actor=person(request))
        else:
            change_rule(rule, fields=rule_posted(request.POST, KINDS[rule.kind]), actor=person(request))
    except AlertRefused as error:
        return _show(request, home, refused=error, refused_rule=rule.pk)
    done = {"delete": _("The rule is deleted."), "on": _("The rule is on."), "off": _("The rule is off.")}
    messages.success(request, done.get(verb, _("The rule is changed.")))
    return _back(home)


@require_POST
def new_channel(request: HttpRequest, project: str) -> HttpResponse:
    """Make a channel of the project, or with `whose` me one of one's own."""
    is_own = request.POST.get("whose") == "me"
    home = named_project(request, project, "viewer" if is_own else "admin")
    if is_own:
        require_whole_account(request.user)
    whose: dict[str, Any] = {"owner": person(request)} if is_own else {"project": home}
    kind, name, address = (request.POST.get(key, "") for key in ("kind", "name", "address"))
    try:
        channel, secret = make_channel(kind=kind, name=name, address=address, actor=person(request), **whose)
    except AlertRefused as error:
        return _show(request, home, refused=error, refused_rule="mine" if is_own else "channel")
    messages.success(request, _("The channel %(name)s is made. Send a test.") % {"name": channel.name})
    if secret:
        keep_once(request, signing_secret=secret, secret_of=channel.name)
    return _back(home)


@require_POST
def edit_channel(request: HttpRequest, project: str, channel_id: int) -> HttpResponse:
    """Send a test over a channel, or delete it, by `verb`."""
    channel = AlertChannel.objects.filter(pk=channel_id).first() if channel_id < 1 << 63 else None
    is_own = channel is not None and channel.owner_id == request.user.pk
    home = named_project(request, project, "viewer" if is_own else "admin")
    if channel is None or not (is_own or channel.project_id == home.pk):
        raise Http404
    if request.POST.get("verb") == "delete":
        delete_channel(channel, actor=person(request))
        messages.success(request, _("The channel is deleted."))
        return _back(home)
    try:
        answer = send_test(channel, actor=person(request), now=timezone.now())
    except AlertRefused as error:
        messages.error(request, str(error))
        return _back(home)
    if answer.is_delivered:
        messages.success(request, _("%(name)s answered: %(answer)s") % {"name": channel.name, "answer": answer.answer})
    else:
        text = _("%(name)s did not take the test: %(answer)s")
        messages.error(request, text % {"name": channel.name, "answer": answer.answer})
    return _back(home)


@require_POST
def change_subscription(request: HttpRequest, project: str) -> HttpResponse:
    """Say what to send oneself."""
    home = named_project(request, project, "viewer")
    chosen = [int(one) for one in request.POST.getlist("channels") if one.isdecimal() and len(one) < 19]
    try:
        subscribe(
            user=person(request),
            project=home,
            runs=request.POST.get("runs", ""),
            severity=request.POST.get("severity", ""),
            is_console=request.POST.get("is_console") == "1",
            channels=chosen,
        )
    except AlertRefused as error:
        return _show(request, home, refused=error, refused_rule="subscription")
    messages.success(request, _("Kept.") if chosen else _("Kept; without a channel nothing is sent to you."))
    return _back(home)


def _show(request: HttpRequest, project: Project, **more: Any) -> HttpResponse:
    is_admin = role(request.user, project) == "admin"
    is_superuser = bool(getattr(request.user, "is_superuser", False))
    user = person(request)
    subscription = subscription_of(user, project)
    own = list(AlertChannel.objects.filter(owner=user).order_by("name"))
    kinds = [kind for kind in KINDS.values() if is_superuser or not kind.is_console]
    new_kind = KINDS.get(more.pop("new_kind", None) or request.GET.get("kind", ""))
    refused_rule = more.get("refused_rule")
    context = {
        "project": project,
        "tabs": tabs_of(request, project, now=timezone.now()),
        "is_rules": True,
        "rows": [
            _row(request, rule, is_admin and (rule.project_id is not None or is_superuser), refused_rule == rule.pk)
            for rule in rules_for(project)
        ],
        "channels": AlertChannel.objects.filter(project=project, owner=None).order_by("name"),
        "own_channels": own,
        "kinds_of_channels": [(kind, channel_plugin(kind)) for kind in channel_kinds()],
        "subscription": subscription,
        "subscribed": {channel.pk for channel in subscription.channels.all()} if subscription.pk else set(),
        "runs_choices": RUNS.items(),
        "severities": SEVERITIES.items(),
        "kinds": kinds,
        "new_kind": new_kind if new_kind in kinds else None,
        "new_fields": rule_fields(new_kind, _typed(request, new_kind, refused_rule == "new")) if new_kind else [],
        "is_admin": is_admin,
        "given": request.POST,
    }
    return render(request, "alerts/rules.html", context | more, status=422 if more.get("refused") else 200)


def _row(request: HttpRequest, rule: AlertRule, may_change: bool, is_refused: bool) -> dict[str, Any]:
    kind = KINDS[rule.kind]
    typed = rule_posted(request.POST, kind)["params"] if is_refused else rule.params
    return {
        "rule": rule,
        "kind": kind,
        "fields": rule_fields(kind, typed),
        "channels": {channel.pk for channel in rule.channels.all()},
        "names": [channel.name for channel in rule.channels.all()],
        "may_change": may_change,
        "prefix": f"r{rule.pk}_",
    }


def _typed(request: HttpRequest, kind: Any, is_refused: bool) -> dict[str, Any]:
    params: dict[str, Any] = rule_posted(request.POST, kind)["params"] if is_refused else {}
    return params


def _back(project: Project) -> HttpResponse:
    return redirect(f"{reverse('alert-rules')}?project={project.slug}")


urlpatterns = [
    path("alerts/rules", rules, name="alert-rules"),
    path("alerts/in/<slug:project>/rules", new_rule, name="new-alert-rule"),
    path("alerts/in/<slug:project>/rules/<int:rule_number>", edit_rule, name="edit-alert-rule"),
    path("alerts/in/<slug:project>/channels", new_channel, name="new-alert-channel"),
    path("alerts/in/<slug:project>/channels/<int:channel_id>", edit_channel, name="edit-alert-channel"),
    path("alerts/in/<slug:project>/subscription", change_subscription, name="change-alert-subscription"),
]
