"""Sign in with a password or a one-time link, and out."""

from typing import Any

from django.conf import settings
from django.contrib.auth import login, logout
from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.views import LoginView
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import path, reverse
from django.utils import timezone
from django.utils.decorators import method_decorator
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST

from console.forms.account import SigninForm
from console.sign_in.address_lock import is_locked, note_failure
from console.sign_in.link import LinkUnusable, use_link, whose_link
from console.sign_in.trail import keep_refused_link
from profiling.counted import counted

BACKEND = "django.contrib.auth.backends.ModelBackend"
ID_TOKEN = "oidc_id_token"  # noqa: S105 (the name that the provider's token has in the session)


@method_decorator((login_not_required, require_http_methods(["GET", "HEAD", "POST"])), name="dispatch")
class Signin(LoginView):
    """The password form; too many failures lock name and address for a while (axes), or the address alone."""

    template_name = "signin/signin.html"
    form_class = SigninForm
    redirect_authenticated_user = True

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Sign in, unless passwords are turned off or the address is locked: then no password is looked at."""
        if not settings.HAS_PASSWORDS:
            text = _("Passwords are turned off in this console. Use another way to sign in.")
            return signin_page(request, problem=text, status=403)
        if is_locked(now=timezone.now()):
            return locked_out(request)
        return super().post(request, *args, **kwargs)

    def form_valid(self, form: Any) -> HttpResponse:
        """Sign in for as long as a session lasts, even if one by the provider was begun before."""
        self.request.session.set_expiry(None)
        return super().form_valid(form)

    def form_invalid(self, form: Any) -> HttpResponse:
        """Say what was wrong, and watch out for who tries many names."""
        note_failure(now=timezone.now())
        return super().form_invalid(form)

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Add which ways of signing in there are."""
        return super().get_context_data(**kwargs) | _ways()


@login_not_required
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def signin_link(request: HttpRequest, token: str) -> HttpResponse:
    """Show whom a one-time link signs in, and sign them in when they say so: who only looks at it changes nothing."""
    now = timezone.now()
    try:
        user = use_link(token=token, now=now) if request.method == "POST" else whose_link(token=token, now=now)
    except LinkUnusable as error:
        if request.user.is_authenticated:
            return redirect("home")  # a reload of the address one came by
        if request.method == "POST":
            keep_refused_link(token, str(error))
        return signin_page(request, problem=str(error), status=410)
    if request.method != "POST":
        other = request.user if request.user.is_authenticated and request.user.pk != user.pk else None
        return render(request, "signin/link.html", {"whom": user, "other": other})
    request.session.set_expiry(None)
    login(request, user, backend=BACKEND)
    return redirect("home")


@login_not_required
@require_POST
def signout(request: HttpRequest) -> HttpResponseBase:
    """End the session, and lead on to the provider that began it, where it wants to know."""
    id_token = request.session.get(ID_TOKEN)
    logout(request)
    url = _sign_out_of_provider(id_token) if id_token and settings.OIDC.issuer else ""
    return leave_for(request, url) if url else redirect("signin")


def _sign_out_of_provider(id_token: str) -> str:
    from console.sign_in.provider import ProviderFailed, provider  # loads Authlib, which most consoles never need

    try:
        return provider(settings.OIDC).sign_out_url(id_token=id_token, back_to=settings.PUBLIC_URL + reverse("signin"))
    except ProviderFailed:
        return ""  # signed out here they are


def leave_for(request: HttpRequest, url: str) -> HttpResponse:
    """Lead on to the provider after a form: by a page, since a redirect of a form to elsewhere is kept from browsers
    by our Content-Security-Policy.
    """
    answer = render(request, "signin/leave.html", {"url": url, "provider": settings.OIDC.label})
    answer["Cache-Control"] = "no-store"
    return answer


def signin_page(request: HttpRequest, *, problem: str, status: int, can_link: bool = True) -> HttpResponse:
    """Return the sign-in page with a sentence on what went wrong."""
    context = {"form": SigninForm(request), "link_problem": problem, "can_link": can_link, **_ways()}
    return render(request, "signin/signin.html", context, status=status)


def locked_out(request: HttpRequest, *_args: Any, **_kwargs: Any) -> HttpResponse:
    """Say that sign-in is locked after too many failures; called by axes too."""
    problem = _("Too many failed attempts. Wait %(minutes)s minutes, or use a one-time link.")
    answer = signin_page(request, problem=counted(problem % {"minutes": settings.LOCKOUT_MINUTES}), status=429)
    answer["Retry-After"] = str(settings.LOCKOUT_MINUTES * 60)
    return answer


def _ways() -> dict[str, Any]:
    """Return what the page says of the ways to sign in."""
    label = settings.OIDC.label if settings.OIDC.issuer else ""
    return {"provider": label, "has_passwords": settings.HAS_PASSWORDS}


urlpatterns = [
    path("signin", Signin.as_view(), name="signin"),
    path("signin/<str:token>", signin_link, name="signin-link"),
    path("signout", signout, name="signout"),
]
