"""Where each address leads: the API and the runners' door here, pages in the `urlpatterns` of their view modules."""

from django.urls import URLPattern, URLResolver, include, path

from console.api.api import urls as api_urls

urlpatterns: list[URLPattern | URLResolver] = [
    path("api/", include((api_urls(), "api"))),
    path("ingest/", include("console.api.ingest")),
    path("", include("console.views.health")),
    path("", include("console.views.frame")),
    path("", include("console.views.signin")),
    path("", include("console.views.home")),
    path("", include("console.views.runs")),
    path("", include("console.views.tune")),
    path("", include("console.views.compare")),
    path("", include("console.views.cluster")),
    path("", include("console.views.guide")),
    path("", include("console.views.account")),
    path("", include("console.views.settings")),
    path("", include("console.views.settings_calibration")),
    path("", include("console.views.new_run_sweep")),
    path("", include("console.views.new_run_advice")),
    path("", include("console.views.new_run")),  # before the pages of runs: "new" is no run
    path("", include("console.views.captures")),
    path("", include("console.views.traces")),
    path("", include("console.views.trace_summary")),
    path("", include("console.views.trace_difference")),
    path("", include("console.views.perfetto")),
    path("", include("console.views.stacks")),
    path("", include("console.views.run")),
    path("", include("console.views.run_symptoms")),
    path("", include("console.views.diagnosis")),
    path("", include("console.views.trace_diagnosis")),
    path("", include("console.views.run_plan")),
]

handler403 = "console.views.errors.forbidden"
handler404 = "console.views.errors.not_found"
handler500 = "console.views.errors.broken"
