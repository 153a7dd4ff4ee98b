"""What the API says of traces. Moments are Unix ns as decimal strings: numbers of JSON would round them."""

from datetime import datetime

from django.urls import reverse
from ninja import Field, Schema

from jobs.models import Layer, Trace
from profiling.trace.schema import REVISION
from profiling.trace.store import CounterSeries, Lane, Note, Store


class FileIn(Schema):
    """A file that is about to be sent: its name, and its size in bytes."""

    model_config = {"extra": "forbid"}

    name: str = Field(max_length=1000)
    size: int = Field(ge=0, le=2**62)


class TraceIn(Schema):
    """Files of one recording, on one clock: one per rank, say. `run` is the run that they are of, if it is known."""

    model_config = {"extra": "forbid"}

    name: str = Field("", max_length=1000, description="without one, that of the first file")
    run: str = Field("", max_length=40)
    files: list[FileIn] = Field(min_length=1, max_length=1000)


class LayerOut(Schema):
    """One file of a trace. `state` is uploading, queued, importing, ready or failed; `progress` is of the import."""

    id: int
    file_name: str
    role: str
    rank: int | None
    kind: str
    state: str
    progress: float
    problem: str
    size: int
    received: int
    sha256: str
    events: int | None
    begin: str | None
    end: str | None
    origin: str | None = Field(description="The moment that tiles are counted from")
    download_url: str | None
    made: str = Field(description="Changes when the file is imported anew, and its lanes and events with it")
    is_outdated: bool = Field(description="It was imported by an older version, and would show more imported again")


class TraceCaptureOut(Schema):
    """The capture that a trace is of."""

    id: str
    tool: str
    attempt: int
    steps: tuple[int, int] | None
    state: str


class TraceOut(Schema):
    """A trace and its layers; `begin` and `end` span those that are ready."""

    id: str
    name: str
    project: str
    run: str | None
    run_name: str | None
    capture: TraceCaptureOut | None
    author: str
    created_at: datetime
    size: int
    url: str
    begin: str | None
    end: str | None
    has_clock: bool = Field(
        description="false: its files tell how long things ran, or in which order, not at which moment"
    )
    layers: list[LayerOut]


class TracesOut(Schema):
    """The newest traces first."""

    traces: list[TraceOut]
    total: int


class StepOut(Schema):
    """When a step ran."""

    number: int
    begin: str
    end: str


class LayerDetailOut(LayerOut):
    """A ready layer: its lanes, counters, steps, and what the importer had to say."""

    lanes: list[Lane]
    series: list[CounterSeries]
    steps: list[StepOut]
    notes: list[Note]
    meta: dict[str, object]


class LinkedEventOut(Schema):
    """An event in short."""

    id: int
    lane: int
    depth: int
    begin: str
    duration: int = Field(description="ns")
    name: str
    category: str


class TraceEventOut(LinkedEventOut):
    """One event with all that is known of it; `linked` and `operators` are events that belong to it."""

    short: str = Field(description="its name as people say it, the name itself where that is short")
    bytes: int
    info: dict[str, object]
    source: LinkedEventOut | None = Field(description="the frame of Python, of no framework, that it was called in")
    linked: list[LinkedEventOut]
    operators: list[LinkedEventOut]


class FoundOut(Schema):
    """Events of one name: how many, their time together [ns], and where the longest one is."""

    layer: int
    name: str
    category: str
    events: int
    total: int
    lane: int
    depth: int
    begin: str
    duration: int
    event: int


class SearchOut(Schema):
    """Names that hold the words, those that took longest first."""

    found: list[FoundOut]


class HitOut(Schema):
    """The next event of a search; all null where there is none."""

    layer: int | None = None
    event: int | None = None
    lane: int | None = None
    depth: int | None = None
    begin: str | None = None
    duration: int | None = None
    name: str | None = None


class NameSumOut(Schema):
    """Events of one name inside a window: how many, their time in it together and the longest one [ns].

    `on_device`: what a device calls like the host is another row."""

    name: str
    category: str
    on_device: bool
    count: int
    total: int
    longest: int


class DeviceSumOut(Schema):
    """One device inside a window [ns]; `overlapped` is communication beside other work of the device."""

    layer: int
    process: str
    device: int
    busy: int
    communication: int
    overlapped: int
    longest_gap: int
    kernels: int
    median_kernel: float


class SelectionOut(Schema):
    """What happened in a window: `count` events, names by time, devices."""

    begin: str
    end: str
    count: int
    names: list[NameSumOut]
    devices: list[DeviceSumOut]


class CounterSamplesOut(Schema):
    """A counter in a window: ns after `begin` and values, thinned to its least and greatest."""

    begin: str
    t: list[float]
    v: list[float]
    of: int


_FIRST_DATE = 10**18
"""Unix ns of 2001: what begins before counts from the begin of its recording, which a report of nsys may not tell."""


def trace_out(trace: Trace) -> TraceOut:
    """Return a trace as the API says it; fetch it with project, run, capture, created_by and layers."""
    layers = sorted(trace.layers.all(), key=lambda layer: layer.pk)
    ready = [layer.facts for layer in layers if layer.state == "ready" and "begin" in layer.facts]
    dated = [facts for facts in ready if facts.get("has_clock", True) and int(facts["begin"]) >= _FIRST_DATE]
    has_clock = bool(dated) or not ready
    ready = dated or ready  # the others are laid out somewhere
    capture = trace.capture
    about = None
    if capture is not None:
        about = TraceCaptureOut(
            id=capture.pk,
            tool=capture.tool,
            attempt=capture.attempt,
            steps=capture.recorded_steps,
            state=capture.state,
        )
    return TraceOut(
        id=trace.pk,
        name=trace.name,
        project=trace.project.slug,
        run=trace.run_id,
        run_name=trace.run.name if trace.run else None,
        capture=about,
        author=trace.created_by.get_username() if trace.created_by else "",
        created_at=trace.created_at,
        size=sum(layer.size for layer in layers),
        url=reverse("trace", args=[trace.pk]),
        begin=str(min(int(facts["begin"]) for facts in ready)) if ready else None,
        end=str(max(int(facts["end"]) for facts in ready)) if ready else None,
        has_clock=has_clock,
        layers=[layer_out(trace, layer) for layer in layers],
    )


def layer_out(trace: Trace, layer: Layer) -> LayerOut:
    """Return one layer of a trace."""
    facts = layer.facts if layer.state == "ready" else {}
    return LayerOut(
        id=layer.pk,
        file_name=layer.file_name,
        role=layer.role,
        rank=layer.rank,
        kind=layer.kind,
        state=layer.state,
        progress=layer.progress,
        problem=layer.problem,
        size=layer.size,
        received=layer.received,
        sha256=layer.sha256,
        events=facts.get("events"),
        begin=_moment(facts.get("begin")),
        end=_moment(facts.get("end")),
        origin=_moment(facts.get("origin")),
        download_url=_download_url(trace, layer),
        made=made_of(layer),
        is_outdated="begin" in facts and facts.get("revision", 1) < REVISION,
    )


def made_of(layer: Layer) -> str:
    """Return what tells one import of a file from the next; "" until there is one."""
    return f"{layer.ended_at.timestamp():.6f}" if layer.ended_at and layer.state == "ready" else ""


def _download_url(trace: Trace, layer: Layer) -> str | None:
    if layer.artifact_id is not None:
        return reverse("run-file", args=[trace.run_id, layer.artifact_id])
    return reverse("trace-file", args=[trace.pk, layer.pk]) if layer.sha256 else None


def layer_detail_out(trace: Trace, layer: Layer, store: Store, steps: list[StepOut]) -> LayerDetailOut:
    """Return a ready layer with what its store holds."""
    return LayerDetailOut(
        **layer_out(trace, layer).model_dump(),
        lanes=list(store.lanes),
        series=list(store.series),
        steps=steps,
        notes=list(store.notes),
        meta=store.meta,
    )


def _moment(value: int | None) -> str | None:
    return None if value is None else str(value)
