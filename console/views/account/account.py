"""The person's own page: API tokens, password, language and look."""

from datetime import timedelta
from typing import Any

from django.conf import settings
from django.contrib import messages
from django.contrib.auth import update_session_auth_hash
from django.contrib.auth.forms import PasswordChangeForm, SetPasswordForm
from django.contrib.auth.models import User
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import path
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_POST

from console.forms.account import DENSITY_COOKIE, THEME_COOKIE, LookForm, TokenForm
from console.session import keep_once, take_once
from console.sign_in.api_token import make_token, revoke_token
from console.views.frame import person
from jobs.accounts.access import projects_of
from jobs.accounts.people import end_other_ways
from jobs.models import ApiToken, Identity

_YEAR_SECONDS = 365 * 24 * 3600


def _password_form(user: User, data: Any = None) -> "SetPasswordForm[User]":
    """Return the form that asks for the old password only from who has one."""
    return PasswordChangeForm(user, data) if user.has_usable_password() else SetPasswordForm(user, data)


def _show(request: HttpRequest, **more: Any) -> HttpResponse:
    user = person(request)
    context = {
        "tokens": ApiToken.objects.filter(user=user, revoked_at=None).select_related("project").order_by("-created_at"),
        "token_form": TokenForm(projects=list(projects_of(user))),
        "now": timezone.now(),
        "password_form": _password_form(user),
        "languages": settings.LANGUAGES,
        "has_passwords": settings.HAS_PASSWORDS,
        "provider": settings.OIDC.label if settings.OIDC.issuer else "",
        "identity": Identity.objects.filter(user=user, issuer=settings.OIDC.issuer).first(),
    }
    return render(request, "account/account.html", context | more, status=422 if more.get("is_refused") else 200)


@require_GET
@never_cache
def account(request: HttpRequest) -> HttpResponse:
    """Show the page, and this once the text of a token just made."""
    return _show(request, **take_once(request, "new_token"))


@require_POST
def create_token(request: HttpRequest) -> HttpResponse:
    """Make a token, whose text the page shows next."""
    user = person(request)
    form = TokenForm(request.POST, projects=list(projects_of(user)))
    if not form.is_valid():
        return _show(request, token_form=form, is_refused=True)
    fields = form.cleaned_data
    expires_at = timezone.now() + timedelta(days=int(fields["days"])) if fields["days"] else None
    _row, text = make_token(
        user=user, name=fields["name"], role=fields["role"], project=fields["project"], expires_at=expires_at
    )
    keep_once(request, new_token=text)
    return redirect("account")


@require_POST
def revoke(request: HttpRequest, token_id: int) -> HttpResponse:
    """Revoke a token."""
    if revoke_token(user=person(request), token_id=token_id, now=timezone.now()):
        messages.success(request, _("Token revoked. Whatever used it is refused from now on."))
    else:
        messages.warning(request, _("That token no longer exists."))
    return redirect("account")


@require_POST
def change_password(request: HttpRequest) -> HttpResponse:
    """Set or change the password; this session stays signed in, all others end."""
    if not settings.HAS_PASSWORDS:
        messages.error(request, _("Passwords are turned off in this console. Use another way to sign in."))
        return redirect("account")
    user = person(request)
    form = _password_form(user, request.POST)
    if not form.is_valid():
        return _show(request, password_form=form, is_refused=True)
    with transaction.atomic():
        form.save()
        update_session_auth_hash(request, user)  # the keys of all others no longer fit
        revokes = "revoke_tokens" in request.POST
        ended = end_other_ways(user, keep_session=request.session.session_key, tokens_too=revokes, now=timezone.now())
    text = _("Password changed. Your other sessions and unused sign-in links ended.")
    if revokes:
        more = ngettext("%(num)s API token was revoked.", "%(num)s API tokens were revoked.", ended.tokens)
        text = f"{text} {more % {'num': ended.tokens}}"
    messages.success(request, text)
    return redirect("account")


@require_POST
def change_look(request: HttpRequest) -> HttpResponse:
    """Keep language, theme and row height in cookies of this browser."""
    form = LookForm(request.POST)
    answer = redirect("account")
    if not form.is_valid():
        messages.error(request, _("That choice is not known. Pick one of the list."))
        return answer
    chosen = form.cleaned_data
    for cookie, value in (
        (settings.LANGUAGE_COOKIE_NAME, chosen["language"]),
        (THEME_COOKIE, chosen["theme"]),
        (DENSITY_COOKIE, chosen["density"]),
    ):
        answer.set_cookie(cookie, value, max_age=_YEAR_SECONDS, samesite="Lax", secure=settings.IS_TLS)
    return answer


urlpatterns = [
    path("account", account, name="account"),
    path("account/tokens", create_token, name="create-token"),
    path("account/tokens/<int:token_id>/revoke", revoke, name="revoke-token"),
    path("account/password", change_password, name="change-password"),
    path("account/look", change_look, name="change-look"),
]
