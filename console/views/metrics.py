"""`/metrics`: numbers of the console, its queue and its runs for Prometheus, to who has a token for it."""

from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse
from django.urls import path
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET
from prometheus_client.exposition import choose_encoder

from console.api.problem import RequestProblem
from console.monitoring.access import scope_of
from console.monitoring.families import Exposition


@login_not_required
@require_GET
@never_cache
def metrics(request: HttpRequest) -> HttpResponse:
    """Answer in the text format that is asked for: OpenMetrics or Prometheus' own; 401 without a valid token."""
    try:
        scope = scope_of(request)
    except RequestProblem:
        scope = None  # expired; what people are told about that, they read on the account page
    if scope is None:
        text = "Send a Bearer token: PITWALL_METRICS_TOKEN, or an API token.\n"
        return HttpResponse(text, status=401, content_type="text/plain", headers={"WWW-Authenticate": "Bearer"})
    encode, content_type = choose_encoder(request.headers.get("Accept", ""))
    return HttpResponse(encode(Exposition(scope, now=timezone.now())), content_type=content_type)


urlpatterns = [path("metrics", metrics, name="metrics")]
