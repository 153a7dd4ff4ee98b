"""Captures of a run: ask for one, follow it, fetch its files, withdraw or delete it."""

from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any, Literal

from django.http import Http404, HttpRequest
from django.http.response import HttpResponseBase
from django.urls import reverse
from django.utils import timezone
from ninja import Field, Query, Router, Schema, Status
from pydantic import JsonValue

from console.api.problem import REFUSALS, RequestProblem
from console.api.visible import caller, run_for
from console.downloads.capture_zip import zip_entries, zip_response
from console.downloads.kept import keep_download
from jobs.captures.artifacts import opens_in_perfetto
from jobs.captures.captures import delete_capture, end_capture, request_capture, withdraw_capture
from jobs.captures.choices import choices, device_for, workers
from jobs.captures.costs import cluster_free_bytes, costs, free_bytes
from jobs.captures.refusals import CaptureRefused, chosen
from jobs.models import Artifact, Capture, Run
from jobs.traces.imports import TIMELESS
from profiling.captures.capture import STATES
from profiling.config import TOOLS
from profiling.launch_nsys import INSTALL

router = Router(tags=["captures"])

_SHOWN = 200


class CaptureIn(Schema):
    """What to record: `first_step` 0 is the next one; `roles` and `ranks` empty are all.

    With `seconds` it is recorded by time: at once, for so long or until it is ended, whatever step is under way.
    """

    model_config = {"extra": "forbid"}

    what: str = Field(
        "", description="timing, operators, kernels, memory, communication or stacks; left out: kernels, or by the tool"
    )
    tool: str = Field("", description="one of `choices`, torch for instance; left out: selected for what is to be seen")
    first_step: int = 0
    num_steps: int = 2
    seconds: float = Field(0, description="0: whole steps; else up to 300 s from now on")
    roles: list[str] = Field(default_factory=list, max_length=20)
    ranks: list[Annotated[int, Field(ge=0, le=2**31 - 1)]] = Field(default_factory=list, max_length=5000)


class CaptureFileOut(Schema):
    """One file of a capture; `download_url` is there once all its bytes are, `perfetto_url` if Perfetto can open it."""

    id: int
    name: str
    role: str
    rank: int | None
    size: int
    received: int
    sha256: str
    is_ready: bool
    tool_version: str = Field(description="What made it, as its worker knows it; empty where that is not known")
    meta: dict[str, JsonValue]
    download_url: str | None
    perfetto_url: str | None
    timeline: str = Field(description="Its import: queued, importing, ready or failed; empty without one")
    timeline_problem: str = Field(description="Why the timeline has nothing of it")


class WithdrawalOut(Schema):
    """Who took a capture back, and when. Its `state` says what became of it: still armed, withdrawn, or too late."""

    by: str
    at: datetime


class CaptureOut(Schema):
    """A capture and its state; `state_times` says when each state was reached."""

    id: str
    attempt: int
    what: str = Field(description="What it was to show; empty for older ones")
    tool: str = Field(description="Empty until it is selected: of a capture requested at launch, once it has workers")
    first_step: int
    num_steps: int
    seconds: float = Field(description="Of a capture by time, the longest it may last; 0 for whole steps")
    steps: tuple[int, int] | None = Field(description="First and last, as recorded; null while not known")
    roles: list[str]
    ranks: list[int]
    state: str
    problem: str
    state_times: dict[str, str]
    meta: dict[str, JsonValue]
    author: str
    withdrawal: WithdrawalOut | None
    created_at: datetime
    ended_at: datetime | None
    size: int
    files: list[CaptureFileOut]
    zip_url: str | None
    trace_url: str | None = Field(description="Its timeline; null until it records")
    stacks_url: str | None = Field(description="The page of its samples of stacks; null where none have arrived")


class RecordableOut(Schema):
    """A process that can be recorded; `problems` maps a tool to "" (ready) or why not, and is {} until it has told."""

    role: str
    rank: int
    node: str = Field(description="Name of its node; empty until it has told")
    problems: dict[str, str]


class CostOut(Schema):
    """What recording with a tool costs on this run; null where that is not known."""

    tool: str
    step_bytes: float | None = Field(description="Of one worker and step")
    second_bytes: float | None = Field(description="Of one worker and second, for captures by time")
    stall_seconds: float | None = Field(description="That the run stands still at start and stop together")
    slowdown: float | None = Field(description="Time of a recorded step divided by that of its neighbours")
    captures: int = Field(description="Of this run, that it is from; 0: measured on the bundled model")


class ToolOut(Schema):
    """A tool that shows the thing on this device; `problem` says why no worker has it, empty if one has.

    `by_steps`: whole steps only, not by time.
    """

    name: str
    about: str
    also: list[str] = Field(description="What else its files show")
    without: list[str] = Field(description="What they do not show")
    by_steps: bool
    num_able: int = Field(description="Of the workers asked for, those that have it")
    problem: str


class ChoiceOut(Schema):
    """What can be asked for, and the tool selected for it on these workers; empty where none can, see `problem`.

    `recorded` is another thing where the device has nothing of the kind.
    """

    what: str
    recorded: str
    tool: str
    why: str
    problem: str
    tools: list[ToolOut] = Field(description="Those that can be named for it, the first to be selected first")


class ChoicesOut(Schema):
    """What can be asked of some workers of a run."""

    device: str = Field(description="cpu, cuda or npu")
    num_workers: int
    choices: list[ChoiceOut]


class CapturesOut(Schema):
    """The newest captures first, the states in order, and what can record here, at what cost."""

    captures: list[CaptureOut]
    total: int
    states: list[str]
    tools: list[str]
    workers: list[RecordableOut]
    install_nsys: str = Field(description="What to do on a node where nsys is missing")
    costs: list[CostOut]
    free_bytes: int = Field(description="Free bytes of the console's disk; a capture that needs more is refused")
    cluster_free_bytes: int | None = Field(
        description="Free bytes of the fullest disk of run directories on the cluster, as last read; null if unknown"
    )


@router.get("/{run_id}/captures", response={200: CapturesOut, **REFUSALS}, summary="Captures of a run")
def list_captures(
    request: HttpRequest, run_id: str, limit: Annotated[int, Query(_SHOWN, ge=1, le=1000)] = _SHOWN
) -> CapturesOut:
    """Return what was recorded, is being recorded, and which worker has which profiler."""
    run = run_for(request, run_id)
    rows = run.captures.select_related("created_by", "withdraw_asked_by", "trace").prefetch_related("files__layer")
    newest = rows.order_by("-created_at", "-pk")[:limit]
    there = workers(run=run, attempt=run.latest_attempt)
    return CapturesOut(
        captures=[capture_out(run, row) for row in newest],
        total=run.captures.count(),
        states=list(STATES),
        tools=list(TOOLS),
        workers=[RecordableOut(role=w.role, rank=w.rank, node=w.node, problems=dict(w.problems)) for w in there],
        install_nsys=INSTALL,
        costs=[CostOut(**asdict(cost)) for cost in costs(run)],
        free_bytes=free_bytes(),
        cluster_free_bytes=cluster_free_bytes(run, now=timezone.now()),
    )


@router.get(
    "/{run_id}/captures/choices",
    response={200: ChoicesOut, **REFUSALS},
    summary="What can be recorded, with which tool",
)
def list_choices(
    request: HttpRequest,
    run_id: str,
    roles: Annotated[list[str], Query(default_factory=list, max_length=20)],
    ranks: Annotated[list[Annotated[int, Field(ge=0, le=2**31 - 1)]], Query(default_factory=list, max_length=5000)],
) -> ChoicesOut:
    """Return for each thing to see the tool that these workers would use now, and why; none named are all."""
    run = run_for(request, run_id)
    there = workers(run=run, attempt=run.latest_attempt)
    try:
        recorded = chosen(among=there, roles=roles, ranks=ranks)
    except CaptureRefused as error:
        raise RequestProblem(422, str(error), field=error.field) from error
    device = device_for(run, attempt=run.latest_attempt, workers=there)
    rows = [ChoiceOut(**asdict(one)) for one in choices(device=device, workers=recorded)]
    return ChoicesOut(device=device, num_workers=len(recorded), choices=rows)


@router.post(
    "/{run_id}/captures", response={200: CaptureOut, 201: CaptureOut, **REFUSALS}, summary="Record steps of a run"
)
def ask_capture(request: HttpRequest, run_id: str, body: CaptureIn) -> Status[CaptureOut]:
    """Ask the running trainer to record some steps. The same request again, before they began: 200."""
    run = run_for(request, run_id, "editor")
    now = timezone.now()
    try:
        row = request_capture(run_id=run.pk, user=caller(request), now=now, **body.model_dump())
    except CaptureRefused as error:
        raise RequestProblem(409 if error.is_conflict else 422, str(error), field=error.field) from error
    return Status(201 if row.created_at == now else 200, capture_out(run, row))


@router.post(
    "/{run_id}/captures/{capture_id}/end", response={202: CaptureOut, **REFUSALS}, summary="End a capture by time"
)
def finish_capture(request: HttpRequest, run_id: str, capture_id: str) -> Status[CaptureOut]:
    """End a capture by time that records; follow it until its files are there. Again: nothing more is done."""
    run = run_for(request, run_id, "editor")
    try:
        row = end_capture(run_id=run.pk, capture_id=capture_id, user=caller(request), now=timezone.now())
    except Capture.DoesNotExist as error:
        raise Http404 from error
    except CaptureRefused as error:
        raise RequestProblem(409, str(error), field=error.field) from error
    return Status(202, capture_out(run, row))


@router.get("/{run_id}/captures/{capture_id}", response={200: CaptureOut, **REFUSALS}, summary="One capture")
def read_capture(request: HttpRequest, run_id: str, capture_id: str) -> CaptureOut:
    """Return one capture with its files."""
    run = run_for(request, run_id)
    row = run.captures.select_related("created_by", "withdraw_asked_by", "trace").filter(pk=capture_id).first()
    if row is None:
        raise Http404
    return capture_out(run, row)


@router.get(
    "/{run_id}/captures/{capture_id}/zip",
    response={200: None, **REFUSALS},
    summary="A capture's files as one zip",
    openapi_extra={
        "responses": {
            200: {
                "description": "The files of a ready capture with their checksums",
                "content": {"application/zip": {"schema": {"type": "string", "format": "binary"}}},
            }
        }
    },
)
def download_capture(request: HttpRequest, run_id: str, capture_id: str) -> HttpResponseBase:
    """Return every file of a ready capture with SHA256SUMS, a manifest and how to open them; 404 until it is ready."""
    capture, entries = zip_entries(run_for(request, run_id), capture_id)
    keep_download(request, "capture", capture_id, f"{run_id}-{capture_id}.zip")
    return zip_response(capture, entries)


@router.delete(
    "/{run_id}/captures/{capture_id}",
    response={202: CaptureOut, 204: None, **REFUSALS},
    summary="Withdraw or delete a capture",
)
def remove_capture(
    request: HttpRequest,
    run_id: str,
    capture_id: str,
    state: Annotated[
        Literal["armed"] | None, Query(None, description="armed: withdraw it, and delete nothing if it is not armed")
    ] = None,
) -> Any:
    """Withdraw a capture that is armed (202, with the capture: follow it until it is withdrawn or was faster), or
    delete one that has ended, and its files, for good (204).
    """
    run = run_for(request, run_id, "editor")
    row = run.captures.filter(pk=capture_id).first()
    if row is None:
        raise Http404
    user, now = caller(request), timezone.now()
    try:
        if state == "armed" or row.state == "armed":
            withdrawn = withdraw_capture(run_id=run.pk, capture_id=capture_id, user=user, now=now)
            return Status(202, capture_out(run, withdrawn))
        delete_capture(run_id=run.pk, capture_id=capture_id, user=user, now=now)
    except Capture.DoesNotExist as error:
        raise Http404 from error
    except CaptureRefused as error:
        raise RequestProblem(409, str(error), field=error.field) from error
    return Status(204, None)


def capture_out(run: Run, row: Capture) -> CaptureOut:
    """Return a capture as the API says it."""
    files = [_file_out(run, row, file) for file in sorted(row.files.all(), key=lambda file: file.name)]
    is_ready = row.state == "ready"
    return CaptureOut(
        id=row.pk,
        attempt=row.attempt,
        what=row.what,
        tool=row.tool,
        first_step=row.first_step,
        num_steps=row.num_steps,
        seconds=row.seconds,
        steps=row.recorded_steps,
        roles=row.roles,
        ranks=row.ranks,
        state=row.state,
        problem=row.problem,
        state_times=row.state_times,
        meta=row.meta,
        author=row.created_by.get_username() if row.created_by else "",
        withdrawal=_withdrawal(row),
        created_at=row.created_at,
        ended_at=row.ended_at,
        size=sum(file.size for file in files),
        files=files,
        zip_url=reverse("capture-zip", args=[run.pk, row.pk]) if is_ready else None,
        trace_url=reverse("trace", args=[row.trace.pk]) if hasattr(row, "trace") else None,
        stacks_url=reverse("run-stacks", args=[run.pk, row.pk]) if any(_is_stacks(file) for file in files) else None,
    )


def _is_stacks(file: CaptureFileOut) -> bool:
    return file.is_ready and file.name.endswith(TIMELESS)


def _withdrawal(row: Capture) -> WithdrawalOut | None:
    if row.withdraw_asked_at is None:
        return None
    by = row.withdraw_asked_by
    return WithdrawalOut(by=by.get_username() if by else "", at=row.withdraw_asked_at)


def _file_out(run: Run, capture: Capture, row: Artifact) -> CaptureFileOut:
    rank = row.meta.get("rank")
    perfetto = f"{reverse('perfetto', args=[run.pk, capture.pk])}?file={row.pk}"
    layer = getattr(row, "layer", None)
    return CaptureFileOut(
        id=row.pk,
        name=row.name.rpartition("/")[2],
        role=str(row.meta.get("role", "")),
        rank=rank if isinstance(rank, int) else None,
        size=row.size,
        received=row.received,
        sha256=row.sha256,
        is_ready=row.is_ready,
        tool_version=str(row.meta.get("tool_version", ""))[:200],
        meta=row.meta,
        download_url=reverse("run-file", args=[run.pk, row.pk]) if row.is_ready else None,
        perfetto_url=perfetto if row.is_ready and opens_in_perfetto(row.name) else None,
        timeline=layer.state if layer else "",
        timeline_problem=layer.problem if layer else "",
    )
