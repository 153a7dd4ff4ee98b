"""The API: one NinjaAPI, one router a resource, one shape of refusal."""

from typing import Any

from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.core.exceptions import TooManyFieldsSent
from django.http import Http404, HttpRequest, HttpResponse, UnreadablePostError
from django.urls import URLPattern, URLResolver, re_path
from django.views.decorators.csrf import csrf_exempt
from ninja import NinjaAPI
from ninja.errors import AuthenticationError, HttpError, ValidationError, ValidationErrorContext
from ninja.operation import Operation

from console.api import cluster, docs
from console.api.account import account, audit, environment, people, projects, quotas, retention, rights, tokens
from console.api.account.auth import SessionAuth, TokenAuth
from console.api.alerts import alert_rules, alerts
from console.api.compare import compare
from console.api.diagnosis import diagnosis, health, log_findings, symptoms
from console.api.guide import catalog, guide, hardware
from console.api.invalid_body import sentence_of_error
from console.api.planner import calibration, can_it_run, diffusion, plan, post_mortem, run_plan
from console.api.problem import RequestProblem
from console.api.runs import (
    answers,
    attempts,
    captures,
    dashboards,
    knobs,
    merges,
    notes,
    run_lists,
    runs,
    samples,
    series,
    specs,
    studies,
    system,
    trash,
    uploads,
)
from console.api.traces import bookmarks, reading, trace_data, trace_difference, trace_summary, traces
from console.budget import RETRY_SECONDS, TooManyQuestions
from console.middleware.caller_gone import CallerGone
from jobs.accounts.access import NotAllowed
from jobs.catalog.spec.parse import SpecInvalid
from jobs.runs.launch import KeyReused


class _Api(NinjaAPI):
    def get_openapi_operation_id(self, operation: Operation) -> str:
        """Return a name that no folder is part of, since clients are generated from it."""
        module = operation.view_func.__module__.rpartition(".")[2]
        return f"console_api_{module}_{operation.view_func.__name__}"

    def validation_error_from_error_contexts(
        self, error_contexts: list[ValidationErrorContext[Any]]
    ) -> ValidationError:
        """Return the error with the values that were given, which ninja leaves out and our sentences name."""
        values = [e["input"] for context in error_contexts for e in context.pydantic_validation_error.errors()]
        error = super().validation_error_from_error_contexts(error_contexts)
        for each, value in zip(error.errors, values, strict=True):
            each["input"] = value
        return error


api = _Api(
    title="Pitwall API",
    version="1",
    description="Launch, watch, stop and fetch runs. Sign in with `Authorization: Bearer <token>`.",
    auth=[TokenAuth(), SessionAuth()],
    urls_namespace="api",
    docs_url=None,  # our own page: no external asset, no inline script
    openapi_url=None,  # served by console.api.docs, to people who are signed in
)
for prefix, router in (
    ("/runs", trash.runs_router),  # before those of one run
    ("/runs", run_lists.router),
    ("/runs", runs.router),
    ("/runs", answers.router),
    ("/runs", attempts.router),
    ("/runs", merges.router),
    ("/runs", knobs.router),
    ("/runs", notes.router),
    ("/runs", captures.router),
    ("/runs", series.router),
    ("/runs", samples.router),
    ("/runs", symptoms.router),
    ("/runs", diagnosis.router),
    ("/runs", health.router),
    ("/runs", log_findings.router),
    ("/runs", system.router),
    ("/runs", run_plan.router),
    ("/runs", post_mortem.router),
    ("/compare", compare.router),
    ("/specs", specs.router),
    ("/studies", studies.router),
    ("/catalog", catalog.router),
    ("/catalog", guide.router),
    ("/traces", traces.router),
    ("/traces", bookmarks.router),
    ("/traces", diagnosis.traces),
    ("/traces", trace_data.router),
    ("/traces", reading.router),
    ("/traces", trace_summary.router),
    ("/traces", trace_difference.router),
    ("/trash", trash.router),
    ("/uploads", uploads.router),
    ("/tokens", tokens.router),
    ("/cluster", cluster.router),
    ("/projects", projects.router),
    ("/projects", run_lists.projects),
    ("/projects", dashboards.projects),
    ("/projects", rights.projects),
    ("/projects", environment.router),
    ("/projects", retention.router),
    ("/projects", health.projects),
    ("/projects", log_findings.projects),
    ("/projects", plan.router),
    ("/projects", can_it_run.router),
    ("/projects", diffusion.router),
    ("/projects", calibration.router),
    ("/accelerators", hardware.accelerators_router),
    ("/models", hardware.models_router),
    ("/account", account.router),
    ("/accounts", people.router),
    ("/access", rights.router),
    ("/audit", audit.router),
    ("/quotas", quotas.router),
    ("/account", alert_rules.own),
    ("/alerts", alerts.router),
    ("/runs", alerts.runs),
    ("/projects", alert_rules.router),
):
    api.add_router(prefix, router)


def _refuse(request: HttpRequest, status: int, *problems: dict[str, str]) -> HttpResponse:
    return api.create_response(request, {"problems": list(problems)}, status=status)


def _problem(message: str, field: str = "") -> dict[str, str]:
    return {"field": field, "message": message}


@api.exception_handler(SpecInvalid)
def _spec_invalid(request: HttpRequest, error: SpecInvalid) -> HttpResponse:
    return _refuse(request, 422, *[_problem(p.message, p.field) for p in error.problems])


@api.exception_handler(KeyReused)
def _key_reused(request: HttpRequest, error: KeyReused) -> HttpResponse:
    return _refuse(request, 409, _problem(str(error), "Idempotency-Key"))


@api.exception_handler(NotAllowed)
def _not_allowed(request: HttpRequest, error: NotAllowed) -> HttpResponse:
    if error.is_member:
        return _refuse(request, 403, _problem(str(error)))
    return _refuse(request, 404, _problem("Not found, or you have no access."))


@api.exception_handler(RequestProblem)
def _refused(request: HttpRequest, error: RequestProblem) -> HttpResponse:
    return _refuse(request, error.status, *error.problems)


@api.exception_handler(TooManyQuestions)
def _too_many_questions(request: HttpRequest, error: TooManyQuestions) -> HttpResponse:
    answer = _refuse(request, 429, _problem(str(error)))
    answer["Retry-After"] = str(RETRY_SECONDS)
    return answer


@api.exception_handler(CallerGone)
def _caller_gone(_request: HttpRequest, _error: CallerGone) -> HttpResponse:
    return HttpResponse(status=499)  # nobody reads it


@api.exception_handler(Http404)
def _not_found(request: HttpRequest, _: Http404) -> HttpResponse:
    return _refuse(request, 404, _problem("Not found, or you have no access."))


@api.exception_handler(AuthenticationError)
def _unauthenticated(request: HttpRequest, _: AuthenticationError) -> HttpResponse:
    message = "Sign in, or send a valid API token as Authorization: Bearer <token>. Make one on the account page."
    answer = _refuse(request, 401, _problem(message))
    answer["WWW-Authenticate"] = 'Bearer realm="pitwall"'
    return answer


@api.exception_handler(TooManyFieldsSent)
def _too_many_fields(request: HttpRequest, _: TooManyFieldsSent) -> HttpResponse:
    message = f"The query has too many fields; at most {settings.DATA_UPLOAD_MAX_NUMBER_FIELDS:,} are allowed."
    return _refuse(request, 400, _problem(message))


@api.exception_handler(UnreadablePostError)
def _unreadable(request: HttpRequest, _: UnreadablePostError) -> HttpResponse:
    return _refuse(request, 400, _problem("The body broke off. Send it again."))


@api.exception_handler(HttpError)
def _http_error(request: HttpRequest, error: HttpError) -> HttpResponse:
    return _refuse(request, error.status_code, _problem(str(error)))


@api.exception_handler(ValidationError)
def _invalid(request: HttpRequest, error: ValidationError) -> HttpResponse:
    return _refuse(request, 422, *[_problem(sentence_of_error(e), _dotted(e["loc"])) for e in error.errors])


def _dotted(location: Any) -> str:
    """Return pydantic's location as people write it, without where in the request it was ("body", the argument)."""
    parts = [str(part) for part in location]
    if parts and parts[0] in ("body", "form", "file"):
        parts = parts[2:] or parts[1:]
    elif parts and parts[0] in ("query", "path", "header", "cookie"):
        parts = parts[1:]
    return ".".join(parts)


@login_not_required
@csrf_exempt
def _unknown_address(request: HttpRequest) -> HttpResponse:
    """Answer in the API's own shape where the pages' 404 would be HTML."""
    return _refuse(request, 404, _problem(f"The API has no address {request.path}. See /api/docs."))


def urls() -> list[URLPattern | URLResolver]:
    """Return the API's addresses; its own sign-in answers 401 where the pages' middleware would redirect."""
    patterns: list[URLPattern | URLResolver] = [*docs.urlpatterns(api), *api.urls[0]]
    for pattern in patterns:
        if isinstance(pattern, URLPattern) and pattern.name != "docs":  # that one is a page
            pattern.callback = login_not_required(pattern.callback)
    return [*patterns, re_path(r"", _unknown_address, name="unknown-address")]
