"""What a timeline shows: tiles, events, counters, phases of the run, searches and summaries of a trace."""

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
from console.api.traces.stores import MAX_INT64, From, Lanes, LayerId, To, chosen_lanes, ready_layers, store_of
from console.api.traces.traces import layer_for, trace_for
from console.budget import expensive
from jobs.traces.phases import read_phases
from profiling.analysis.sources import source_of, stack_of
from profiling.analysis.window import find_next, steps, summarise_window, thinned
from profiling.trace.category import Category
from profiling.trace.naming import readable
from profiling.trace.store import StoredEvent
from profiling.trace.tiles import tile

router = Router(tags=["traces"])

_FOUND = 50

Words = Annotated[str, Query(..., min_length=1, max_length=200)]

BINARY = {"responses": {200: {"content": {"application/octet-stream": {"schema": {"type": "string"}}}}}}


@router.get(
    "/{trace_id}/layers/{int:layer_id}", response={200: LayerDetailOut, **REFUSALS}, summary="A layer and its lanes"
)
def read_layer(request: HttpRequest, trace_id: str, layer_id: int) -> LayerDetailOut:
    """Return a ready layer with its lanes, counters, steps and notes; 409 until it is ready."""
    layer = layer_for(request, trace_id, layer_id)
    with store_of(layer) as store:
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
    chosen = chosen_lanes(lanes)
    etag = f'"{layer.pk}-{made_of(layer)}-{level}-{index}-{lanes}"'
    caching = "max-age=31536000, immutable" if made == made_of(layer) else "no-cache"
    headers = {"ETag": etag, "Cache-Control": f"private, {caching}"}
    if request.headers.get("If-None-Match") == etag and layer.state == "ready":
        return HttpResponseNotModified(headers=headers)
    with store_of(layer) as store:
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
    with store_of(layer_for(request, trace_id, layer_id)) as store:
        detail = store.detail(event) if event < 2**62 else None
        if detail is None:
            raise Http404
        source = source_of(stack_of(store, detail))
    event_row = detail.event
    return TraceEventOut(
        id=event_row.id,
        lane=event_row.lane,
        depth=event_row.depth,
        begin=str(event_row.ts),
        duration=event_row.dur,
        name=event_row.name,
        category=event_row.category,
        short=readable(event_row.name, Category[event_row.category.upper()]),
        bytes=event_row.bytes,
        info=detail.info,
        source=_other(source) if source else None,
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
    with store_of(layer_for(request, trace_id, layer_id)) as store:
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
    for row in ready_layers(trace_for(request, trace_id), layer):
        with store_of(row) as store:
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
    for row in ready_layers(trace_for(request, trace_id), layer):
        with store_of(row) as store:
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
    chosen = chosen_lanes(lanes)
    if end <= begin:
        raise RequestProblem(422, f"to: {end} is not after from, {begin}.", field="to")
    if chosen is not None and layer is None:
        raise RequestProblem(422, "lanes: they are numbers of one layer. Name it as `layer`.", field="lanes")
    names: dict[tuple[str, bool], NameSumOut] = {}
    devices: list[DeviceSumOut] = []
    count = 0
    for row in ready_layers(trace, layer):
        with store_of(row) as store:
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
