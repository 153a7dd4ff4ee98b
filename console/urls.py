"""Where each address leads: the API and the runners' door here, pages in the `urlpatterns` of their view modules."""

from django.urls import URLPattern, URLResolver, include, path

from console.api.api import urls as api_urls

urlpatterns: list[URLPattern | URLResolver] = [
    path("api/", include((api_urls(), "api"))),
    path("ingest/", include("console.api.ingest")),
    path("", include("console.views.new_run")),  # before the pages of runs: "new" is no run
    path("", include("console.views.run")),
]
