"""A whole capture as a download."""

from asgiref.sync import sync_to_async
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.urls import URLPattern, path

from console.downloads.capture_zip import Entry, zip_entries, zip_response
from console.downloads.kept import keep_download
from console.views.run.files import visible_run
from jobs.models import Capture


async def capture_zip(request: HttpRequest, run_id: str, capture_id: str) -> HttpResponseBase:
    """Stream all files of a ready capture in one zip."""
    if request.method not in ("GET", "HEAD"):
        return HttpResponse(status=405, headers={"Allow": "GET, HEAD"})
    capture, entries = await sync_to_async(_find)(request, run_id, capture_id)
    return zip_response(capture, entries, is_head=request.method == "HEAD")


def _find(request: HttpRequest, run_id: str, capture_id: str) -> tuple[Capture, list[Entry]]:
    entries = zip_entries(visible_run(request, run_id)[0], capture_id)
    keep_download(request, "capture", capture_id, f"{run_id}-{capture_id}.zip")
    return entries


urlpatterns: list[URLPattern] = [
    path("runs/<slug:run_id>/captures/<slug:capture_id>.zip", capture_zip, name="capture-zip"),
]
