"""Settings: who belongs to the project, what its planner uses; for whoever runs the console, new projects and
accounts."""

from typing import Any

from django.conf import settings as console_settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import path, reverse
from django.utils import timezone
from django.utils.http import urlencode
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_POST

from console.paging import page_number, paged
from console.session import keep_once, take_once
from console.sign_in.accounts import AccountRefused, make_account
from console.views.frame import current_project, named_project, person
from console.views.settings.planner import constants_posted, planner_settings
from console.views.settings.storage import quota_card, storage_card
from jobs.accounts.access import require, require_superuser, role
from jobs.accounts.members import MemberRefused, remove_member, set_member
from jobs.accounts.projects import ProjectRefused, make_project
from jobs.models import Membership, Project
from jobs.planning.settings import PlanSettingsRefused, change_settings

MEMBERS_SIZE = 25


def _show(request: HttpRequest, project: Project | None, **more: Any) -> HttpResponse:
    words = request.GET.get("member", "")[:200].replace("\0", "")
    members = Membership.objects.filter(project=project).select_related("user").order_by("user__username")
    page = paged(members.filter(user__username__icontains=words), page_number(request, "members"), size=MEMBERS_SIZE)
    context = {
        "project": project,
        "members": page,
        "num_members": members.count(),
        "member_words": words,
        "query": urlencode({"project": project.slug if project else "", "member": words}),
        "is_admin": project is not None and role(request.user, project) == "admin",
        "roles": Membership.Role.choices,
        "given": request.POST,
        "storage": storage_card(project, request.user) if project else None,
        "quotas": quota_card(request),
        "planner": planner_settings(project, refused=more.get("refused", ()), posted=request.POST) if project else None,
    }
    if more.get("refused"):
        more["problem"] = "planner"
    return render(request, "settings/settings.html", context | more, status=422 if more.get("problem") else 200)


@require_GET
@never_cache
def settings(request: HttpRequest) -> HttpResponse:
    """Show the page, and this once the link of an account just made."""
    project = current_project(request)
    if project is not None:
        require(request.user, project, "viewer")
    return _show(request, project, **take_once(request, "link", "linked"))


@require_POST
def change_member(request: HttpRequest, project: str) -> HttpResponse:
    """Add a person to the project, or change their role."""
    home = named_project(request, project, "admin")
    name, new_role = (request.POST.get(field, "").strip() for field in ("username", "role"))
    try:
        set_member(project=home, username=name, role=new_role, actor=person(request))
    except MemberRefused as error:
        return _show(request, home, problem="member", sentence=str(error))
    messages.success(request, _("%(name)s is %(role)s now.") % {"name": name, "role": Membership.Role(new_role).label})
    return _back(home)


@require_POST
def drop_member(request: HttpRequest, project: str) -> HttpResponse:
    """Take a person out of the project."""
    home = named_project(request, project, "admin")
    name = request.POST.get("username", "")
    try:
        remove_member(project=home, username=name, actor=person(request))
    except MemberRefused as error:
        return _show(request, home, problem="member", sentence=str(error))
    messages.success(request, _("%(name)s is no longer a member.") % {"name": name})
    return _back(home)


@require_POST
def change_price(request: HttpRequest, project: str) -> HttpResponse:
    """Set or forget the price of a device hour."""
    name, price = request.POST.get("accelerator", "")[:200], request.POST.get("price")
    forgets = "remove" in request.POST
    done = _("The price is forgotten.") if forgets else _("The price is kept.")
    return _change_planner(request, project, done, prices={name: None if forgets else price or ""})


@require_POST
def change_currency(request: HttpRequest, project: str) -> HttpResponse:
    """Set the currency of the project's prices."""
    currency = request.POST.get("currency", "")
    return _change_planner(
        request, project, _("The currency is kept; the numbers are as they were."), currency=currency
    )


@require_POST
def change_constants(request: HttpRequest, project: str) -> HttpResponse:
    """Set constants of the planner, take some back to what is shipped, or all."""
    home = named_project(request, project, "admin")
    constants = constants_posted(request.POST, home)
    return _change_planner(request, project, _("The planner now uses these values."), constants=constants)


def _change_planner(request: HttpRequest, slug: str, done: str, **changes: Any) -> HttpResponse:
    home = named_project(request, slug, "admin")
    try:
        change_settings(project=home, actor=person(request), today=timezone.localdate(), **changes)
    except PlanSettingsRefused as error:
        return _show(request, home, refused=error.problems)
    messages.success(request, done)
    return _back(home)


@require_POST
def new_project(request: HttpRequest) -> HttpResponse:
    """Make a project and go to it."""
    require_superuser(request.user)
    name, slug = (request.POST.get(field, "") for field in ("name", "slug"))
    try:
        project = make_project(name=name, slug=slug, actor=person(request))
    except ProjectRefused as error:
        return _show(request, current_project(request), problem=error.field, sentence=str(error))
    messages.success(request, _("Project %(name)s created. Add its members.") % {"name": project.name})
    return _back(project)


@require_POST
def new_account(request: HttpRequest) -> HttpResponse:
    """Make an account; the page shows next the link that signs in to it."""
    require_superuser(request.user)
    url, name = console_settings.PUBLIC_URL, request.POST.get("username", "")
    try:
        link = make_account(username=name, base_url=url, actor=person(request), now=timezone.now())
    except AccountRefused as error:
        return _show(request, current_project(request), problem="account", sentence=str(error))
    keep_once(request, link=link, linked=name.strip())
    return redirect("settings")


def _back(project: Project) -> HttpResponse:
    return redirect(f"{reverse('settings')}?project={project.slug}")


urlpatterns = [
    path("settings", settings, name="settings"),
    path("settings/projects", new_project, name="new-project"),
    path("settings/accounts", new_account, name="new-account"),
    path("settings/<slug:project>/members", change_member, name="change-member"),
    path("settings/<slug:project>/prices", change_price, name="change-price"),
    path("settings/<slug:project>/currency", change_currency, name="change-currency"),
    path("settings/<slug:project>/constants", change_constants, name="change-constants"),
    path("settings/<slug:project>/members/remove", drop_member, name="drop-member"),
]
