"""People: the accounts of this console, one of them with all that lets it in, and whose its runs become.

For superusers; whose runs somebody's become is also for admins of the project.
"""

from collections.abc import Callable
from typing import Any

from django.conf import settings as console_settings
from django.contrib import messages
from django.contrib.auth.models import User
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import path
from django.utils import timezone
from django.utils.http import urlencode
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_POST

from console.paging import Page, page_number, paged
from console.session import keep_once, take_once
from console.sign_in.accounts import AccountRefused, renew_link
from console.views.frame import person
from jobs.accounts.access import require_superuser
from jobs.accounts.handover import hand_over, owned
from jobs.accounts.people import (
    PersonRefused,
    activate,
    deactivate,
    find_person,
    leave_all,
    only_admin_of,
    people,
    revoke_tokens,
    set_superuser,
    sign_out_everywhere,
)
from jobs.accounts.sessions import count_sessions
from jobs.models import ApiToken, Identity, Membership, Project
from profiling.counted import counted

PAGE_SIZE = 50


@require_GET
@never_cache
def list_of_people(request: HttpRequest) -> HttpResponse:
    """List the accounts whose name has the words asked for."""
    require_superuser(request.user)
    words = request.GET.get("q", "")[:200]
    page: Page[User] = paged(people(words, now=timezone.now()), page_number(request), size=PAGE_SIZE)
    return render(request, "people/people.html", {"words": words, "page": page, "query": urlencode({"q": words})})


@require_GET
@never_cache
def one_person(request: HttpRequest, username: str) -> HttpResponse:
    """Show one account."""
    require_superuser(request.user)
    return _show(request, _found(username), **take_once(request, "link"))


@require_POST
def change_person(request: HttpRequest, username: str) -> HttpResponse:
    """Do to an account what the button says, `verb`."""
    require_superuser(request.user)
    whom = _found(username)
    change = _VERBS.get(request.POST.get("verb", ""))
    if change is None:
        raise Http404
    try:
        messages.success(request, change(whom.username, person(request)))
    except PersonRefused as error:
        return _show(request, whom, problem=str(error))
    return redirect("people-one", username)


@require_POST
def new_link(request: HttpRequest, username: str) -> HttpResponse:
    """Make another first link of somebody who has never signed in; the page shows it once."""
    require_superuser(request.user)
    whom = _found(username)
    url = console_settings.PUBLIC_URL
    try:
        link = renew_link(username=whom.username, base_url=url, actor=person(request), now=timezone.now())
    except AccountRefused as error:
        return _show(request, whom, problem=str(error))
    keep_once(request, link=link)
    return redirect("people-one", username)


@require_POST
def hand_over_runs(request: HttpRequest, username: str) -> HttpResponse:
    """Make somebody else the owner of the person's runs in a project: of all, or of those named by id."""
    require_superuser(request.user)
    whom = _found(username)
    project = Project.objects.filter(slug=request.POST.get("project", "").replace("\0", "")).first()
    if project is None:
        raise Http404
    to, ids = request.POST.get("to", "").strip(), request.POST.get("ids", "").replace(",", " ").split()
    try:
        done = hand_over(project=project, username=whom.username, to=to, ids=ids or None, actor=person(request))
    except PersonRefused as error:
        return _show(request, whom, problem=str(error), handing=project.slug, to=to, ids=" ".join(ids))
    messages.success(request, _handed_over(done.runs, to))
    return redirect("people-one", username)


def _found(username: str) -> User:
    try:
        return find_person(username)
    except PersonRefused as error:
        raise Http404 from error


def _show(request: HttpRequest, whom: User, **more: Any) -> HttpResponse:
    tokens = ApiToken.objects.filter(user=whom, revoked_at=None).select_related("project").order_by("-created_at")
    context = {
        "whom": whom,
        "memberships": Membership.objects.filter(user=whom).select_related("project").order_by("project__name"),
        "tokens": tokens,
        "num_sessions": count_sessions()[str(whom.pk)],
        "identities": Identity.objects.filter(user=whom),
        "owned": owned(whom),
        "leads_alone": {project.pk for project in only_admin_of(whom)} if whom.is_active else set(),
        "now": timezone.now(),
    }
    return render(request, "people/person.html", context | more, status=409 if more.get("problem") else 200)


def _handed_over(num_runs: int, to: str) -> str:
    text = ngettext("%(num)s run belongs to %(name)s now.", "%(num)s runs belong to %(name)s now.", num_runs)
    return text % {"num": num_runs, "name": to}


def _deactivate(name: str, actor: User) -> str:
    ended = deactivate(username=name, actor=actor, now=timezone.now())
    text = _("%(name)s is inactive. Ended: %(tokens)s tokens, %(sessions)s sessions, %(links)s unused links.")
    return counted(text % {"name": name, **ended.as_json()})


def _activate(name: str, actor: User) -> str:
    activate(username=name, actor=actor)
    return _("%(name)s is active again. Tokens and sessions did not come back.") % {"name": name}


def _make_superuser(name: str, actor: User) -> str:
    set_superuser(username=name, is_superuser=True, actor=actor)
    return _("%(name)s is a superuser now.") % {"name": name}


def _unmake_superuser(name: str, actor: User) -> str:
    set_superuser(username=name, is_superuser=False, actor=actor)
    return _("%(name)s is no superuser any more.") % {"name": name}


def _revoke(name: str, actor: User) -> str:
    num = revoke_tokens(username=name, actor=actor, now=timezone.now())
    return ngettext("%(num)s API token was revoked.", "%(num)s API tokens were revoked.", num) % {"num": num}


def _sign_out(name: str, actor: User) -> str:
    num = sign_out_everywhere(username=name, actor=actor)
    return ngettext("%(num)s session ended.", "%(num)s sessions ended.", num) % {"num": num}


def _leave(name: str, actor: User) -> str:
    num = len(leave_all(username=name, actor=actor))
    text = ngettext("%(name)s left %(num)s project.", "%(name)s left %(num)s projects.", num)
    return text % {"name": name, "num": num}


_VERBS: dict[str, Callable[[str, User], str]] = {
    "deactivate": _deactivate,
    "activate": _activate,
    "superuser": _make_superuser,
    "no-superuser": _unmake_superuser,
    "revoke-tokens": _revoke,
    "sign-out": _sign_out,
    "leave": _leave,
}

urlpatterns = [
    path("people", list_of_people, name="people"),
    path("people/<str:username>", one_person, name="people-one"),
    path("people/<str:username>/change", change_person, name="change-person"),
    path("people/<str:username>/link", new_link, name="new-link"),
    path("people/<str:username>/hand-over", hand_over_runs, name="hand-over"),
]
