"""Error pages: what happened, in a sentence, and where to go from here."""

from collections.abc import Callable
from urllib.parse import quote

from django.contrib.auth.decorators import login_not_required
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.template.loader import render_to_string
from django.utils.translation import gettext as _

from console.budget import RETRY_SECONDS, TooManyQuestions
from jobs.accounts.access import NotAllowed
from jobs.retention.deletion import may_change
from jobs.retention.trash import RunInTrash


@login_not_required
def forbidden(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    """Answer 403: to members without the role; who is no member gets a 404 and learns nothing."""
    if isinstance(exception, NotAllowed) and not exception.is_member:
        return not_found(request, exception)
    message = str(exception) if isinstance(exception, (NotAllowed, PermissionDenied)) and exception.args else ""
    return render(request, "errors/403.html", {"said": message}, status=403)


class RefusalMiddleware:
    """Turns NotAllowed, raised anywhere in a view, into its page; refuses addresses that no database can look up."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """Pass the request on, unless its address holds a NUL character, at which PostgreSQL breaks."""
        if "\0" in request.path_info or "%00" in request.META.get("QUERY_STRING", ""):
            return _nul_refused(request)
        return self.get_response(request)

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        """Answer NotAllowed, TooManyQuestions and RunInTrash; leave every other exception alone."""
        if isinstance(exception, TooManyQuestions):
            return too_many_questions(request, exception)
        if isinstance(exception, RunInTrash):
            return _in_trash(request, exception)
        return forbidden(request, exception) if isinstance(exception, NotAllowed) else None


def _in_trash(request: HttpRequest, problem: RunInTrash) -> HttpResponse:
    """Answer 410: the run was deleted, and may come back."""
    item = problem.item
    is_back = item is not None and item.state == "kept"
    may_restore = item is not None and is_back and may_change(request.user, item)
    context = {"run": problem.run, "item": item, "is_back": is_back, "may_restore": may_restore}
    return render(request, "errors/in_trash.html", context, status=410)


def too_many_questions(request: HttpRequest, error: TooManyQuestions) -> HttpResponse:
    """Answer 429 as the page that asked can show it: as JSON, as a notice over what is there, or as a page."""
    if request.headers.get("HX-Request"):
        answer = HttpResponse(headers={"X-Problem": quote(str(error))}, status=429)
    elif request.headers.get("Accept", "").startswith("application/json"):
        answer = JsonResponse({"problems": [{"field": "", "message": str(error)}]}, status=429)
    else:
        answer = render(request, "errors/429.html", {"said": str(error)}, status=429)
    answer["Retry-After"] = str(RETRY_SECONDS)
    return answer


def _nul_refused(request: HttpRequest) -> HttpResponse:
    sentence = _("The address holds a NUL character (%00). Leave it out.")
    if request.path_info.startswith("/api/"):
        return JsonResponse({"problems": [{"field": "", "message": sentence}]}, status=400)
    if request.path_info.startswith("/ingest/"):
        return JsonResponse({"problems": [sentence]}, status=400)
    return HttpResponse(sentence, status=400, content_type="text/plain; charset=utf-8")


@login_not_required
def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:  # noqa: ARG001 - Django passes it by name
    """Answer a form whose token is gone: usually a page left open over a sign-out."""
    return render(request, "errors/403.html", {"is_csrf": True}, status=403)


@login_not_required
def not_found(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:  # noqa: ARG001 - same
    """Answer 404."""
    return render(request, "errors/404.html", status=404)


@login_not_required
def broken(_request: HttpRequest) -> HttpResponse:
    """Answer 500 without touching the database: it may be what broke."""
    return HttpResponse(render_to_string("errors/500.html"), status=500)
