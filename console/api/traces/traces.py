"""Traces: list and read them, bring files piece by piece, import again, delete."""

from typing import Annotated

from django.db.models import QuerySet
from django.http import Http404, HttpRequest
from django.utils import timezone
from ninja import Query, Router, Status

from console.api.problem import REFUSALS, ProblemsOut, RequestProblem
from console.api.traces.schema import LayerOut, TraceIn, TraceOut, TracesOut, layer_out, trace_out
from console.api.visible import ProjectSlug, caller, project_for
from jobs.accounts.access import Role, require
from jobs.models import Layer, Run, Trace
from jobs.traces.imports import import_again
from jobs.traces.uploads import (
    MAX_PIECE_BYTES,
    FileAnnouncement,
    NoRoomForTrace,
    TraceOffsetWrong,
    TraceRefused,
    create_trace,
    delete_trace,
    receive,
)

router = Router(tags=["traces"])

API_PATIENCE = 20.0
"""Seconds that a caller waits for what is computed of a trace before being told to ask again."""
_SHOWN = 200
_MAX_ID = 2**62


def whole(rows: "QuerySet[Trace]") -> "QuerySet[Trace]":
    """Return the rows with all that `trace_out` reads of them, without those in the trash."""
    return without_trash(rows).select_related("project", "run", "capture", "created_by").prefetch_related("layers")


def without_trash(rows: "QuerySet[Trace]") -> "QuerySet[Trace]":
    """Return the traces that are not in the trash, with their run or their capture."""
    return rows.exclude(run__trashed_at__isnull=False).exclude(capture__trashed_at__isnull=False)


def trace_for(request: HttpRequest, trace_id: str, needed: Role = "viewer") -> Trace:
    """Return the trace if the caller has the role in its project. Raises: Http404, NotAllowed."""
    trace = whole(Trace.objects.filter(pk=trace_id)).first() if "\0" not in trace_id else None
    if trace is None:
        raise Http404
    require(request.user, trace.project, needed)
    return trace


def layer_for(request: HttpRequest, trace_id: str, layer_id: int, needed: Role = "viewer") -> Layer:
    """Return a layer of a trace of the caller's. Raises: Http404, NotAllowed."""
    trace = trace_for(request, trace_id, needed)
    layer = trace.layers.select_related("trace", "artifact").filter(pk=layer_id).first() if layer_id < _MAX_ID else None
    if layer is None:
        raise Http404
    return layer


@router.get("", response={200: TracesOut, **REFUSALS}, summary="Traces of a project")
def list_traces(
    request: HttpRequest,
    project: ProjectSlug = None,
    run: Annotated[str, Query("", max_length=40, description="only those of this run")] = "",
    limit: Annotated[int, Query(_SHOWN, ge=1, le=1000)] = _SHOWN,
) -> TracesOut:
    """Return captures that can be looked at and uploaded traces, the newest first."""
    rows = without_trash(Trace.objects.filter(project=project_for(request, project)))
    if run:
        rows = rows.filter(run_id=run)
    newest = whole(rows).order_by("-created_at", "-pk")[:limit]
    return TracesOut(traces=[trace_out(trace) for trace in newest], total=rows.count())


@router.post("", response={201: TraceOut, 507: ProblemsOut, **REFUSALS}, summary="Announce files of a trace")
def announce_trace(request: HttpRequest, body: TraceIn, project: ProjectSlug = None) -> Status[TraceOut]:
    """Make a trace whose files are about to be sent, each to its layer, piece by piece (PUT .../content)."""
    home = project_for(request, project, "editor")
    run = Run.objects.filter(pk=body.run, project=home, trashed_at=None).first() if body.run else None
    if body.run and run is None:
        raise RequestProblem(422, f"There is no run {body.run!r} in this project.", field="run")
    files = [FileAnnouncement(name=file.name, size=file.size) for file in body.files]
    try:
        trace = create_trace(
            project=home, name=body.name, files=files, run=run, user=caller(request), now=timezone.now()
        )
    except TraceRefused as error:
        raise _refusal(error) from error
    return Status(201, trace_out(whole(Trace.objects.filter(pk=trace.pk)).get()))


@router.get("/{trace_id}", response={200: TraceOut, **REFUSALS}, summary="One trace")
def read_trace(request: HttpRequest, trace_id: str) -> TraceOut:
    """Return a trace with the state of each of its layers."""
    return trace_out(trace_for(request, trace_id))


@router.delete("/{trace_id}", response={204: None, **REFUSALS}, summary="Delete an uploaded trace")
def remove_trace(request: HttpRequest, trace_id: str) -> Status[None]:
    """Delete a trace with its files and stores, for good. That of a capture goes with its capture (409)."""
    trace = trace_for(request, trace_id, "editor")
    try:
        delete_trace(trace=trace, user=caller(request))
    except TraceRefused as error:
        raise _refusal(error) from error
    return Status(204, None)


@router.put(
    "/{trace_id}/layers/{int:layer_id}/content",
    response={200: LayerOut, 507: ProblemsOut, **REFUSALS},
    summary="Send a piece of a file",
    openapi_extra={
        "requestBody": {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}
    },
)
def send_piece(
    request: HttpRequest, trace_id: str, layer_id: int, offset: Annotated[int, Query(..., ge=0, le=_MAX_ID)]
) -> LayerOut:
    """Take the bytes from `offset` on, at most 8 MiB. 409 says how many are here: go on from there."""
    layer = layer_for(request, trace_id, layer_id, "editor")
    if int(request.headers.get("Content-Length") or 0) > MAX_PIECE_BYTES:
        raise RequestProblem(413, f"A chunk may have at most {MAX_PIECE_BYTES} bytes. Send smaller ones.")
    try:
        receive(layer=layer, offset=offset, data=request.body, now=timezone.now())
    except TraceOffsetWrong as error:
        raise RequestProblem(409, str(error), field="offset") from error
    except TraceRefused as error:
        raise _refusal(error) from error
    layer.refresh_from_db()
    return layer_out(layer.trace, layer)


@router.post(
    "/{trace_id}/layers/{int:layer_id}/import", response={200: LayerOut, **REFUSALS}, summary="Import a file again"
)
def import_layer_again(request: HttpRequest, trace_id: str, layer_id: int) -> LayerOut:
    """Queue a layer that is ready or failed once more; one in any other state is left as it is."""
    layer = layer_for(request, trace_id, layer_id, "editor")
    import_again(layer=layer, user=caller(request))
    layer.refresh_from_db()
    return layer_out(layer.trace, layer)


def _refusal(error: TraceRefused) -> RequestProblem:
    status = 507 if isinstance(error, NoRoomForTrace) else 409 if error.is_conflict else 422
    return RequestProblem(status, str(error), field=error.field)
