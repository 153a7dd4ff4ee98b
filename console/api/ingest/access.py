"""Authenticates runners and reports outages: shared by the views under `/ingest/`."""

import logging
from collections.abc import Awaitable, Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, ParamSpec

import redis
from asgiref.sync import sync_to_async
from django.contrib.auth.decorators import login_not_required
from django.core.exceptions import RequestDataTooBig
from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, JsonResponse
from django.http.response import HttpResponseBase
from django.views.decorators.csrf import csrf_exempt

from jobs.ingest.inbox import QueueFull
from jobs.models import ENDED, Attempt
from jobs.runs.launch import check_ingest_token

log = logging.getLogger(__name__)

P = ParamSpec("P")
Inner = Callable[Concatenate[HttpRequest, Attempt, P], Awaitable[HttpResponseBase]]
View = Callable[Concatenate[HttpRequest, str, int, P], Coroutine[Any, Any, HttpResponseBase]]


class IngestRefused(Exception):
    """The request is wrong in itself; repeating it will not help."""

    def __init__(self, sentence: str, *, status: int = 400) -> None:
        self.status = status
        super().__init__(sentence)


def refusal(status: int, *sentences: str) -> JsonResponse:
    """Return why a request is not taken."""
    return JsonResponse({"problems": list(sentences)}, status=status)


def fenced(request: HttpRequest, attempt: Attempt) -> JsonResponse | None:
    """Return the 409 of an attempt that may no longer report, None for one that may.

    The clean-up job of a runner that was killed says `?cleanup=1`: it may still report after the run has ended, until
    the clean-up report is in.
    """
    if attempt.number == attempt.run.latest_attempt:
        is_unproved = request.GET.get("cleanup") == "1" and not attempt.cleanup
        if attempt.run.state not in ENDED or is_unproved:
            return None
    return not_taken(attempt)


def not_taken(attempt: Attempt) -> JsonResponse:
    """Return the 409 of who may not report, or not any more."""
    return JsonResponse({"error": "fenced", "durable_through": attempt.durable_batch}, status=409)


def runner_view(*methods: str) -> Callable[[Inner[P]], View[P]]:
    """Make a view of a function that gets the attempt (with its run) whose token the request carries."""

    def decorate(inner: Inner[P]) -> View[P]:
        @csrf_exempt
        @login_not_required
        @wraps(inner)
        async def view(
            request: HttpRequest, run: str, number: int, *args: P.args, **kwargs: P.kwargs
        ) -> HttpResponseBase:
            if request.method not in methods:
                answer = refusal(405, f"Use {' or '.join(methods)} here.")
                answer["Allow"] = ", ".join(methods)
                return answer
            try:
                if not check_ingest_token(run, number, _token(request)):
                    return refusal(401, "The token does not belong to this run and attempt.")
                attempt = await sync_to_async(_find)(run, number)
                if attempt is None:
                    return refusal(404, f"There is no attempt {number} of a run {run}.")
                return await inner(request, attempt, *args, **kwargs)
            except IngestRefused as error:
                return refusal(error.status, str(error))
            except RequestDataTooBig:
                return refusal(413, "The body is too large. Send smaller pieces.")
            except QueueFull as error:
                return refusal(503, f"The console cannot keep up: {error} Try again.")
            except redis.OutOfMemoryError:
                return refusal(503, "The console's Redis is full until batches are stored. Try again.")
            except redis.RedisError as error:
                return refusal(503, f"The console's Redis is away ({type(error).__name__}). Try again.")
            except (OperationalError, InterfaceError) as error:
                log.warning("The database did not take a request of %s/%s: %s", run, number, error)
                return refusal(503, f"The console's database does not take anything ({error}). Try again.")

        return view  # type: ignore[return-value]  # the decorators read as untyped

    return decorate


def _token(request: HttpRequest) -> str:
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def _find(run: str, number: int) -> Attempt | None:
    return Attempt.objects.select_related("run", "run__project").filter(run_id=run, number=number).first()
