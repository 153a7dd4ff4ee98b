"""Sign in by the OpenID Connect provider, and connect an account with a person of it."""

from datetime import timedelta

from django.conf import settings
from django.contrib import messages
from django.contrib.auth import login
from django.contrib.auth.decorators import login_not_required
from django.http import Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect
from django.urls import path, reverse
from django.utils import timezone
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_POST

from console.views.account.signin import BACKEND, ID_TOKEN, leave_for, signin_page
from console.views.frame import person
from jobs.accounts.identities import account_of, connect, disconnect, keep_refusal
from jobs.accounts.people import PersonRefused

BEGUN_SECONDS = 3600  # as long as Authlib takes somebody back

_NEXT = "oidc_next"
_CONNECTS = "oidc_connects"  # the id of the account that asked to be connected


@login_not_required
@never_cache
@require_GET
def begin(request: HttpRequest) -> HttpResponseBase:
    """Lead to the provider."""
    if request.user.is_authenticated:
        return redirect("home")
    request.session.pop(_CONNECTS, None)
    wanted = request.GET.get("next", "")
    is_here = url_has_allowed_host_and_scheme(wanted, allowed_hosts={request.get_host()})
    request.session[_NEXT] = wanted if is_here else reverse("home")
    request.session.set_expiry(BEGUN_SECONDS)  # of who may never come back
    return _to_provider(request)


@require_POST
def connect_account(request: HttpRequest) -> HttpResponseBase:
    """Lead to the provider, to come back connected with a person of it."""
    request.session[_CONNECTS] = person(request).pk
    return _to_provider(request)


@require_POST
def disconnect_account(request: HttpRequest) -> HttpResponse:
    """Let nobody of the provider sign in to this account any more."""
    _require_provider()
    user = person(request)
    if disconnect(user=user, issuer=settings.OIDC.issuer, actor=user):
        messages.success(request, _("Disconnected. Nobody of the provider signs in to this account."))
    return redirect("account")


@login_not_required
@never_cache
@require_GET
def callback(request: HttpRequest) -> HttpResponseBase:
    """Sign in, or connect, who comes back from the provider."""
    _require_provider()
    from console.sign_in.provider import ProviderFailed, provider  # loads Authlib, which most consoles never need

    connects = request.session.pop(_CONNECTS, None)
    try:
        arrived = provider(settings.OIDC).arrive(request)
    except ProviderFailed as error:
        return _refused(request, str(error), 502 if error.is_away else 403)
    visitor, config = arrived.visitor, settings.OIDC
    try:
        if connects is not None:
            return _connected(request, connects, visitor.issuer, visitor.subject)
        user = account_of(visitor, config.groups, may_create=config.creates_accounts, now=timezone.now())
    except PersonRefused as error:
        keep_refusal(visitor, str(error))
        return _refused(request, str(error), 403)
    wanted = request.session.pop(_NEXT, "") or reverse("home")
    login(request, user, backend=BACKEND)
    request.session[ID_TOKEN] = arrived.id_token
    # A moment and not a duration, which would begin anew whenever something is kept in the session.
    request.session.set_expiry(timezone.now() + timedelta(hours=config.session_hours))
    return redirect(wanted)


def _connected(request: HttpRequest, account_id: int, issuer: str, subject: str) -> HttpResponse:
    user = request.user
    if not user.is_authenticated or user.pk != account_id:
        raise PersonRefused(_("You signed out while you were away, so nothing was connected. Sign in and begin again."))
    connect(user=user, issuer=issuer, subject=subject, actor=user)
    messages.success(request, _("Connected: from now on you can sign in by %(name)s.") % {"name": settings.OIDC.label})
    return redirect("account")


def _refused(request: HttpRequest, sentence: str, status: int) -> HttpResponse:
    if request.user.is_authenticated:
        messages.error(request, sentence)
        return redirect("account")
    return signin_page(request, problem=sentence, status=status, can_link=False)


def _to_provider(request: HttpRequest) -> HttpResponseBase:
    _require_provider()
    from console.sign_in.provider import ProviderFailed, provider  # loads Authlib, which most consoles never need

    back_to = settings.PUBLIC_URL.rstrip("/") + reverse("oidc-callback")
    try:
        url = provider(settings.OIDC).begin(request, back_to=back_to)
    except ProviderFailed as error:
        return _refused(request, str(error), 502 if error.is_away else 403)
    return leave_for(request, url) if request.method == "POST" else redirect(url)


def _require_provider() -> None:
    """Raises: Http404 where the console has no provider."""
    if not settings.OIDC.issuer:
        raise Http404


urlpatterns = [
    path("signin/oidc", begin, name="oidc"),
    path("signin/oidc/callback", callback, name="oidc-callback"),
    path("account/oidc/connect", connect_account, name="oidc-connect"),
    path("account/oidc/disconnect", disconnect_account, name="oidc-disconnect"),
]
