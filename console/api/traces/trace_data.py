"""What a timeline shows: tiles, events, counters, phases of the run, searches and summaries of a trace."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated

import orjson
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotModified
from django.utils.cache import patch_vary_headers
from ninja import Query, Router

from console.api.problem import EXPENSIVE, REFUSALS, RequestProblem
from console.api.runs.series import spans_json
from console.api.runs.series_schema import SpansOut
from console.api.traces.schema import (
    CounterSamplesOut,
    DeviceSumOut,
    FoundOut,
    HitOut,
    LayerDetailOut,
    LinkedEventOut,
    NameSumOut,
    SearchOut,
    SelectionOut,
    StepOut,
    TraceEventOut,
    layer_detail_out,
    made_of,
)
from console.api.traces.traces import layer_for, trace_for
from console.budget import expensive
from jobs.models import Layer, Trace
from jobs.traces.files import damaged
from jobs.traces.imports import store_path
from jobs.traces.phases import read_phases
from profiling.analysis.window import find_next, steps, summarise_window, thinned
from profiling.trace.category import Category
from profiling.trace.store import NotAStore, Store, StoredEvent, is_of_store, is_whole, opened
from profiling.trace.tiles import tile

router = Router(tags=["traces"])

MAX_INT64 = 2**63 - 1
_MOST_LANES = 4096
_FOUND = 50

From = Annotated[int, Query(..., alias="from", ge=0, le=MAX_INT64, description="Unix ns")]
To = Annotated[int, Query(..., alias="to", ge=0, le=MAX_INT64, description="Unix ns")]
Lanes = Annotated[str, Query("", max_length=20_000, description="numbers of lanes, separated by commas; empty: all")]
Words = Annotated[str, Query(..., min_length=1, max_length=200)]
LayerId = Annotated[int | None, Query(None, ge=1, le=2**62, description="only this layer")]

BINARY = {"responses": {200: {"content": {"application/octet-stream": {"schema": {"type": "string"}}}}}}


@router.get(
    "/{trace_id}/layers/{int:layer_id}", response={200: LayerDetailOut, **REFUSALS}, summary="A layer and its lanes"
)
def read_layer(request: HttpRequest, trace_id: str, layer_id: int) -> LayerDetailOut:
    """Return a ready layer with its lanes, counters, steps and notes; 409 until it is ready."""
    layer = layer_for(request, trace_id, layer_id)
    with _store(layer) as store:
        step_rows = [StepOut(number=s.number, begin=str(s.begin), end=str(s.end)) for s in steps(store)]
        return layer_detail_out(layer.trace, layer, store, step_rows)


@router.get(
    "/{trace_id}/layers/{int:layer_id}/tiles/{int:level}/{int:index}",
    response={200: None, 304: None, **REFUSALS},
    summary="A tile of the timeline",
    openapi_extra=BINARY,
)
def read_tile(
    request: HttpRequest, trace_id: str, layer_id: int, level: int, index: int, lanes: Lanes = "", made: str = ""
) -> HttpResponse:
    """Return 512 columns of 2**level ns each, from `origin` + index * 512 * 2**level on (see docs/use/profile.md).

    With `made`, the layer's own, it never changes, so that a browser keeps it; without, it is to be asked for again.
    """
    layer = layer_for(request, trace_id, layer_id)
    chosen = _lanes(lanes)
    etag = f'"{layer.pk}-{made_of(layer)}-{level}-{index}-{lanes}"'
    caching = "max-age=31536000, immutable" if made == made_of(layer) else "no-cache"
    headers = {"ETag": etag, "Cache-Control": f"private, {caching}"}
    if request.headers.get("If-None-Match") == etag and layer.state == "ready":
        return HttpResponseNotModified(headers=headers)
    with _store(layer) as store:
        try:
            data = tile(store, level=level, index=index, lanes=chosen)
        except ValueError as error:
            raise RequestProblem(422, str(error)) from error
    answer = HttpResponse(data, content_type="application/octet-stream", headers=headers)
    patch_vary_headers(answer, ["Cookie", "Authorization"])
    return answer


@router.get(
    "/{trace_id}/layers/{int:layer_id}/events/{int:event}",
    response={200: TraceEventOut, **REFUSALS},
    summary="One event in detail",
)
def read_event(request: HttpRequest, trace_id: str, layer_id: int, event: int) -> TraceEventOut:
    """Return an event with its arguments and what it is linked with: the launch of a kernel, its operator."""
    with _store(layer_for(request, trace_id, layer_id)) as store:
        detail = store.detail(event) if event < 2**62 else None
    if detail is None:
        raise Http404
    event_row = detail.event
    return TraceEventOut(
        id=event_row.id,
        lane=event_row.lane,
        depth=event_row.depth,
        begin=str(event_row.ts),
        duration=event_row.dur,
        name=event_row.name,
        category=event_row.category,
        bytes=event_row.bytes,
        info=detail.info,
        linked=[_other(one) for one in detail.linked],
        operators=[_other(one) for one in detail.operators],
    )


def _other(event: StoredEvent) -> LinkedEventOut:
    return LinkedEventOut(
        id=event.id,
        lane=event.lane,
        depth=event.depth,
        begin=str(event.ts),
        duration=event.dur,
        name=event.name,
        category=event.category,
    )


@router.get(
    "/{trace_id}/layers/{int:layer_id}/series/{int:series}",
    response={200: CounterSamplesOut, **REFUSALS},
    summary="A counter over time",
)
def read_samples(
    request: HttpRequest,
    trace_id: str,
    layer_id: int,
    series: int,
    begin: From,
    end: To,
    points: Annotated[int, Query(2000, ge=10, le=20_000)] = 2000,
) -> HttpResponse:
    """Return samples of a window, ns after `from`, thinned so that extremes stay."""
    with _store(layer_for(request, trace_id, layer_id)) as store:
        if not 0 <= series < len(store.series):
            raise Http404
        times, values = store.samples(series, begin=begin, end=end)
    shown, shown_values = thinned(times, values, points)
    body = {"begin": str(begin), "t": (shown - begin).tolist(), "v": shown_values.tolist(), "of": len(times)}
    return HttpResponse(orjson.dumps(body), content_type="application/json")


@router.get("/{trace_id}/phases", response={200: SpansOut, **REFUSALS}, summary="Phases of the run beside a trace")
def get_phases(request: HttpRequest, trace_id: str) -> HttpResponse:
    """Return the phases of the run at the time of the trace: the first layer, there before any file has arrived."""
    return HttpResponse(orjson.dumps(spans_json(read_phases(trace_for(request, trace_id)))), "application/json")


@router.get("/{trace_id}/search", response={200: SearchOut, **EXPENSIVE}, summary="Find names")
@expensive
def search(request: HttpRequest, trace_id: str, q: Words, layer: LayerId = None) -> SearchOut:
    """Return names that contain the words, in any case, by the time they took."""
    matches: list[FoundOut] = []
    for row in _ready(trace_for(request, trace_id), layer):
        with _store(row) as store:
            for one in store.search(q, _FOUND):
                matches.append(
                    FoundOut(
                        layer=row.pk,
                        name=one.name,
                        category=Category(one.category).name.lower(),
                        events=one.events,
                        total=one.total,
                        lane=one.lane,
                        depth=one.depth,
                        begin=str(one.begin),
                        duration=one.duration,
                        event=one.event,
                    )
                )
    return SearchOut(found=sorted(matches, key=lambda one: -one.total)[:_FOUND])


@router.get("/{trace_id}/hits", response={200: HitOut, **EXPENSIVE}, summary="The next event of a search")
@expensive
def next_hit(
    request: HttpRequest,
    trace_id: str,
    q: Words,
    at: Annotated[int, Query(..., ge=0, le=MAX_INT64, description="Unix ns")],
    back: bool = False,
    layer: LayerId = None,
) -> HitOut:
    """Return the first event after `at` (`back`: the last before) whose name contains the words."""
    best: HitOut | None = None
    for row in _ready(trace_for(request, trace_id), layer):
        with _store(row) as store:
            match = find_next(store, q, at=at, is_back=back)
        if match is None:
            continue
        hit = HitOut(
            layer=row.pk,
            event=match.event,
            lane=match.lane,
            depth=match.depth,
            begin=str(match.begin),
            duration=match.duration,
            name=match.name,
        )
        if best is None or best.begin is None or (int(match.begin) < int(best.begin)) != back:
            best = hit
    return best or HitOut()


@router.get("/{trace_id}/summary", response={200: SelectionOut, **EXPENSIVE}, summary="What happened in a window")
@expensive
def summary(
    request: HttpRequest,
    trace_id: str,
    begin: From,
    end: To,
    layer: LayerId = None,
    lanes: Lanes = "",
    limit: Annotated[int, Query(40, ge=1, le=500)] = 40,
) -> SelectionOut:
    """Sum up [from, to): events by name with their time inside it, and how busy each device was.

    `lanes` are numbers of one layer, so they need `layer`.
    """
    trace = trace_for(request, trace_id)
    chosen = _lanes(lanes)
    if end <= begin:
        raise RequestProblem(422, f"to: {end} is not after from, {begin}.", field="to")
    if chosen is not None and layer is None:
        raise RequestProblem(422, "lanes: they are numbers of one layer. Name it as `layer`.", field="lanes")
    names: dict[tuple[str, bool], NameSumOut] = {}
    devices: list[DeviceSumOut] = []
    count = 0
    for row in _ready(trace, layer):
        with _store(row) as store:
            summarised = summarise_window(store, begin=begin, end=end, lanes=chosen, limit=limit)
        count += summarised.count
        for one in summarised.names:
            key = (one.name, one.on_device)
            before = names.get(key)
            names[key] = NameSumOut(
                name=one.name,
                category=one.category,
                on_device=one.on_device,
                count=one.count + (before.count if before else 0),
                total=one.total + (before.total if before else 0),
                longest=max(one.longest, before.longest if before else 0),
            )
        for device in summarised.devices:
            values = {key: getattr(device, key) for key in DeviceSumOut.model_fields if key != "layer"}
            devices.append(DeviceSumOut(layer=row.pk, **values))
    top = sorted(names.values(), key=lambda one: (-one.total, one.name))[:limit]
    return SelectionOut(begin=str(begin), end=str(end), count=count, names=top, devices=devices)


def _ready(trace: Trace, layer_id: int | None) -> Iterator[Layer]:
    rows = trace.layers.select_related("trace", "artifact").filter(state="ready").order_by("pk")
    yield from rows if layer_id is None else rows.filter(pk=layer_id)


def _lanes(text: str) -> Sequence[int] | None:
    """Return the lanes that a request names, None for all. Raises: RequestProblem."""
    parts = [part for part in text.split(",") if part]
    if any(not part.isascii() or not part.isdigit() or len(part) > 9 for part in parts) or len(parts) > _MOST_LANES:
        raise RequestProblem(422, f"lanes: {text[:80]!r} is no list of numbers separated by commas.", field="lanes")
    return [int(part) for part in parts] or None


@contextmanager
def _store(layer: Layer) -> Iterator[Store]:
    """Lend the store of a ready layer. Raises: RequestProblem while it is not ready, or damaged; Http404 once it is
    gone."""
    if layer.state != "ready":
        text = f"{layer.file_name} is {layer.state}. Ask again when it is ready."
        raise RequestProblem(409, f"{layer.file_name} failed: {layer.problem}" if layer.state == "failed" else text)
    try:
        with opened(store_path(layer)) as store:
            yield store
    except FileNotFoundError as error:
        raise Http404 from error
    except Exception as error:
        if isinstance(error, NotAStore) or (is_of_store(error) and not is_whole(store_path(layer))):
            raise RequestProblem(409, damaged(layer.file_name)) from error
        raise
