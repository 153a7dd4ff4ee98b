"""Where each address leads: the API and the ingest endpoints here, pages in the `urlpatterns` of their view modules."""

from django.urls import URLPattern, URLResolver, include, path

from console.api.api import urls as api_urls

urlpatterns: list[URLPattern | URLResolver] = [
    path("api/", include((api_urls(), "api"))),
    path("ingest/", include("console.api.ingest.ingest")),
    path("", include("console.views.health")),
    path("", include("console.views.metrics")),
    path("", include("console.views.frame")),
    path("", include("console.views.account.provider")),  # before sign-in: "oidc" is no one-time link
    path("", include("console.views.account.signin")),
    path("", include("console.views.home")),
    path("", include("console.views.runs.trash")),
    path("", include("console.views.runs.page")),
    path("", include("console.views.runs.bulk")),
    path("", include("console.views.runs.saved_views")),
    path("", include("console.views.tune.page")),
    path("", include("console.views.compare.page")),
    path("", include("console.views.compare.report")),
    path("", include("console.views.cluster")),
    path("", include("console.views.alerts.rules")),
    path("", include("console.views.alerts.page")),
    path("", include("console.views.guide")),
    path("", include("console.views.account.account")),
    path("", include("console.views.people.page")),
    path("", include("console.views.people.rights")),
    path("", include("console.views.audit")),
    path("", include("console.views.settings.page")),
    path("", include("console.views.settings.storage")),
    path("", include("console.views.settings.calibration")),
    path("", include("console.views.settings.environment")),
    path("", include("console.views.settings.retention")),
    path("", include("console.views.settings.bands")),
    path("", include("console.views.settings.log_rules")),
    path("", include("console.views.new_run.sweep")),
    path("", include("console.views.new_run.advice")),
    path("", include("console.views.new_run.page")),  # before the pages of runs: "new" is no run
    path("", include("console.views.run.captures")),
    path("", include("console.views.traces.page")),
    path("", include("console.views.traces.summary")),
    path("", include("console.views.traces.difference")),
    path("", include("console.views.traces.perfetto")),
    path("", include("console.views.run.stacks")),
    path("", include("console.views.run.page")),
    path("", include("console.views.run.post_mortem")),
    path("", include("console.views.run.symptoms")),
    path("", include("console.views.run.log_findings")),
    path("", include("console.views.run.diagnosis")),
    path("", include("console.views.traces.diagnosis")),
    path("", include("console.views.run.plan")),
]

handler403 = "console.views.errors.forbidden"
handler404 = "console.views.errors.not_found"
handler500 = "console.views.errors.broken"
