"""Sign in with a password or a one-time link, and out."""

from typing import Any

from django.contrib.auth import login
from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.views import LoginView, LogoutView
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import path
from django.utils import timezone
from django.utils.decorators import method_decorator
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_http_methods

from console.forms.account import SigninForm
from console.sign_in.link import LinkUnusable, use_link
from console.sign_in.trail import keep_refused_link


@method_decorator((login_not_required, require_http_methods(["GET", "HEAD", "POST"])), name="dispatch")
class Signin(LoginView):
    """The password form; too many failures lock name and address for a while (axes)."""

    template_name = "signin/signin.html"
    form_class = SigninForm
    redirect_authenticated_user = True


@login_not_required
@never_cache
@require_GET
def signin_link(request: HttpRequest, token: str) -> HttpResponse:
    """Sign in by a one-time link."""
    try:
        user = use_link(token=token, now=timezone.now())
    except LinkUnusable as error:
        if request.user.is_authenticated:
            return redirect("home")  # a reload of the address one came by
        keep_refused_link(token, str(error))
        form = SigninForm(request)
        return render(request, "signin/signin.html", {"form": form, "link_problem": str(error)}, status=410)
    login(request, user, backend="django.contrib.auth.backends.ModelBackend")
    return redirect("home")


def locked_out(request: HttpRequest, *_args: Any, **_kwargs: Any) -> HttpResponse:
    """Say that sign-in is locked after too many failures; called by axes."""
    form = SigninForm(request)
    problem = _("Too many failed attempts. Wait 15 minutes, or use a one-time link.")
    return render(request, "signin/signin.html", {"form": form, "link_problem": problem}, status=429)


urlpatterns = [
    path("signin", Signin.as_view(), name="signin"),
    path("signin/<str:token>", signin_link, name="signin-link"),
    path("signout", LogoutView.as_view(next_page="signin"), name="signout"),
]
