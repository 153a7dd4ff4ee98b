"""Whether this process lives, and whether what it needs answers: for load balancers, Docker and the supervisor."""

from django.contrib.auth.decorators import login_not_required
from django.db import DatabaseError, connection
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import path
from django.views.decorators.http import require_safe
from redis.exceptions import RedisError

from jobs.telemetry.streams import client


@login_not_required
@require_safe
def healthz(_request: HttpRequest) -> HttpResponse:
    """Answer that the process lives; asks nothing of anyone."""
    return HttpResponse("ok\n", content_type="text/plain")


@login_not_required
@require_safe
def readyz(_request: HttpRequest) -> JsonResponse:
    """Answer 200 if database and Redis answer, else 503; says which, and nothing more, because anyone may ask."""
    answers = {"database": _database_answers(), "redis": _redis_answers()}
    return JsonResponse(answers, status=200 if all(answers.values()) else 503)


def _database_answers() -> bool:
    try:
        connection.ensure_connection()
    except DatabaseError:
        return False
    return True


def _redis_answers() -> bool:
    try:
        with client() as redis:
            return bool(redis.ping())
    except (RedisError, OSError):
        return False


urlpatterns = [path("healthz", healthz, name="healthz"), path("readyz", readyz, name="readyz")]
