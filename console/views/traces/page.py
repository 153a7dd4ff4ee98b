"""Pages of traces: the list with its upload, the timeline, and downloads of uploaded files."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from asgiref.sync import sync_to_async
from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import URLPattern, path, reverse
from django.utils.http import content_disposition_header
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET

from console.api.traces.schema import trace_out
from console.api.traces.traces import whole
from console.downloads.kept import keep_download
from console.labels.catalog import phase_label
from console.views.frame import current_project
from console.views.run.files import send_pieces, visible_run
from jobs.accounts.access import NotAllowed, Role, allows, require, role
from jobs.models import Capture, Layer, Trace
from jobs.traces.files import NoAnswer
from jobs.traces.imports import disk_bytes, source_path
from jobs.traces.results import StillComputing
from jobs.traces.uploads import MAX_PIECE_BYTES
from profiling.phases import PHASES

_SHOWN = 200
_TABS = ("timeline", "summary", "diagnosis", "files")


@require_GET
def traces(request: HttpRequest) -> HttpResponse:
    """List what can be looked at in the project, and take uploads."""
    project = current_project(request)
    if project is None:
        raise Http404(_("You are in no project yet. Ask an admin to add you."))
    rows = whole(Trace.objects.filter(project=project)).order_by("-created_at", "-pk")
    shown = [trace_out(trace) for trace in rows[:_SHOWN]]
    can_edit = allows(role(request.user, project), "editor")
    context = {
        "traces": [
            (trace, _state(trace.layers, trace.capture), _events(trace.layers), _cause(trace.layers)) for trace in shown
        ],
        "total": rows.count(),
        "can_edit": can_edit,
        "page": {
            "api": "/api/traces",
            "project": project.slug,
            "pieceBytes": MAX_PIECE_BYTES,
            "maxBytes": settings.MAX_TRACE_BYTES,
            "canEdit": can_edit,
        },
    }
    return render(request, "trace/traces.html", context)


def _state(layers: Any, capture: Any) -> str:
    """Return the one state that says most about a trace."""
    states = [layer.state for layer in layers]
    for state in ("failed", "uploading", "importing", "queued"):
        if state in states:
            return state
    return "ready" if states else (capture.state if capture else "queued")


def _cause(layers: Any) -> str:
    """Return why a file of a trace failed, of several the first one's; "" if none did."""
    return next((layer.problem for layer in layers if layer.state == "failed"), "")


def _events(layers: Any) -> int | None:
    """Return how many events its ready layers hold, None while none is ready."""
    counted = [layer.events for layer in layers if layer.events is not None]
    return sum(counted) if counted else None


@require_GET
def trace(request: HttpRequest, trace_id: str, tab: str = "timeline") -> HttpResponse:
    """Show a trace."""
    row, held = visible_trace(request, trace_id)
    is_coming = any(layer.state in ("uploading", "queued", "importing") for layer in row.layers.all())
    is_coming |= row.capture is not None and row.capture.state not in ("ready", "failed", "withdrawn")
    return render(request, "trace/trace.html", page_of(row, held, tab=tab) | {"is_coming": is_coming})


def page_of(row: Trace, held: Role, *, tab: str) -> dict[str, object]:
    """Return what the frame of a trace's page shows, whichever tab is open."""
    body = trace_out(row)
    words = {"timeline": _("Timeline"), "summary": _("Summary"), "diagnosis": _("Diagnosis"), "files": _("Files")}
    return {
        "trace": body,
        "run": row.run,
        "project": row.project,
        "capture": body.capture,
        "tab": tab,
        "tabs": [
            {
                "name": name,
                "label": words[name],
                "url": reverse("trace", args=[row.pk]) + ("" if name == "timeline" else f"/{name}"),
            }
            for name in _TABS
        ],
        "disk": disk_bytes(row),
        "can_edit": allows(held, "editor"),
        "can_delete": allows(held, "editor") and row.capture_id is None,
        "phases": PHASES,
        "page": {
            "id": row.pk,
            "api": f"/api/traces/{row.pk}",
            "list": reverse("traces"),
            "run": row.run_id,
            "runUrl": reverse("run", args=[row.run_id]) if row.run_id else "",
            "canEdit": allows(held, "editor"),
            "trace": body.model_dump(mode="json"),
            "phases": [{"key": phase.key, "label": phase_label(phase.key), "token": phase.token} for phase in PHASES],
        },
    }


def unanswered(request: HttpRequest, row: Trace, context: Mapping[str, object], problem: NoAnswer) -> HttpResponse:
    """Show why a tab has nothing to show; while it is being computed the page asks again. `context` is `page_of`'s."""
    details = {
        "problem": str(problem),
        "asks_again": isinstance(problem, StillComputing),
        "files_of": problem.trace_id or row.pk,
    }
    return render(request, "trace/unanswered.html", {**context, **details})


def visible_trace(request: HttpRequest, trace_id: str) -> tuple[Trace, Role]:
    """Return the trace and the person's role; 404 for one that does not exist or is not theirs to know of."""
    row = get_object_or_404(whole(Trace.objects.all()), pk=trace_id)
    try:
        return row, require(request.user, row.project, "viewer")
    except NotAllowed as error:
        raise Http404(_("Not found, or you have no access.")) from error


async def trace_file(request: HttpRequest, trace_id: str, layer_id: int) -> HttpResponseBase:
    """Send a file that somebody uploaded, as it came."""
    if request.method not in ("GET", "HEAD"):
        return HttpResponse(status=405, headers={"Allow": "GET, HEAD"})
    layer, path = await sync_to_async(_uploaded)(request, trace_id, layer_id)
    size = (await asyncio.to_thread(path.stat)).st_size
    headers = {
        "Content-Disposition": content_disposition_header(True, layer.file_name) or "attachment",
        "Content-Length": str(size),
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "private, no-cache",
    }
    if request.method == "HEAD":
        return HttpResponse(headers=headers, content_type="application/octet-stream")
    await sync_to_async(keep_download)(request, "trace", trace_id, layer.file_name)
    pieces = send_pieces(path, 0, size - 1)
    return StreamingHttpResponse(pieces, headers=headers, content_type="application/octet-stream")


def _uploaded(request: HttpRequest, trace_id: str, layer_id: int) -> tuple[Layer, Path]:
    row, _role = visible_trace(request, trace_id)
    layer = get_object_or_404(Layer.objects.select_related("trace"), pk=layer_id, trace=row, artifact=None)
    file = source_path(layer)
    if not layer.sha256 or not file.is_file():
        raise Http404(_("%(name)s is not here yet. Try again when all of it has arrived.") % {"name": layer.file_name})
    return layer, file


@require_GET
def capture_trace(request: HttpRequest, run_id: str, capture_id: str) -> HttpResponse:
    """Lead from a capture to its timeline, with what the address asks of it."""
    run, _role = visible_run(request, run_id)
    capture = get_object_or_404(Capture.objects.select_related("trace"), pk=capture_id, run=run)
    if not hasattr(capture, "trace"):
        raise Http404(_("Nothing of this capture can be shown yet. Try again when it records."))
    query = request.META.get("QUERY_STRING", "")
    return redirect(reverse("trace", args=[capture.trace.pk]) + (f"?{query}" if query else ""))


urlpatterns: list[URLPattern] = [
    path("traces/", traces, name="traces"),
    path("traces/<slug:trace_id>", trace, name="trace"),
    path("traces/<slug:trace_id>/files", trace, {"tab": "files"}, name="trace-files"),
    path("traces/<slug:trace_id>/files/<int:layer_id>", trace_file, name="trace-file"),
    path("runs/<slug:run_id>/captures/<slug:capture_id>/timeline", capture_trace, name="capture-trace"),
]
