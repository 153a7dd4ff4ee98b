"""What people read off a timeline: arrows of an event, where a window's time goes, its events, its critical path."""

import csv
import io
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Annotated, Any, Literal

import orjson
from django.http import Http404, HttpRequest, HttpResponse
from ninja import Query, Router

from console.api.problem import EXPENSIVE, REFUSALS, RequestProblem
from console.api.traces.reading_schema import (
    ArrowOut,
    ArrowsOut,
    CallerOut,
    CriticalPathOut,
    FlameOut,
    NameTimeOut,
    NodeOut,
    PlacedEventOut,
    SegmentOut,
    TableOut,
    TableRowOut,
    TrackOut,
    TracksOut,
)
from console.api.traces.schema import CounterSamplesOut
from console.api.traces.stores import From, LayerId, To, ready_layers, store_of
from console.api.traces.traces import layer_for, trace_for
from console.budget import expensive
from jobs.models import Layer
from profiling.analysis import critical_path, event_table, flame, queue
from profiling.analysis.event_table import EventCondition, Row, WrongCondition, lane_name, parsed
from profiling.analysis.flows import arrows, is_collective, peer, place_of
from profiling.analysis.parts import is_part, partners
from profiling.analysis.too_many import TooManyEvents
from profiling.analysis.window import thinned
from profiling.trace.category import Category
from profiling.trace.naming import readable
from profiling.trace.store import Store, StoredEvent

router = Router(tags=["traces"])

Where = Annotated[str, Query("", max_length=2000, description="conditions: name ~ gemm and length > 1 ms")]
Sort = Annotated[event_table.Sort, Query("length")]
Order = Annotated[Literal["asc", "desc"], Query("desc")]

_MOST_CSV = 100_000
CSV = {"responses": {200: {"content": {"text/csv": {"schema": {"type": "string"}}}}}}


@router.get(
    "/{trace_id}/layers/{int:layer_id}/events/{int:event}/arrows",
    response={200: ArrowsOut, **EXPENSIVE},
    summary="What an event is linked with, to the end of the chain",
)
@expensive
def read_arrows(request: HttpRequest, trace_id: str, layer_id: int, event: int) -> ArrowsOut:
    """Return arrows from launches to what they launched, from forward to backward, and between the ranks of a
    collective."""
    layer = layer_for(request, trace_id, layer_id)
    with store_of(layer) as store:
        chosen = _event(store, event)
        links = [
            ArrowOut(kind=one.kind, source=_placed(layer, one.source), target=_placed(layer, one.target))
            for one in arrows(store, event)
        ]
        place = place_of(store, chosen) if is_collective(chosen) else None
        if place is None and not is_part(store):
            return ArrowsOut(arrows=links)
        own = _placed(layer, chosen)
        is_work = store.lanes[chosen.lane].kind == "stream"
        for other in ready_layers(layer.trace, None):
            if other.pk == layer.pk:
                continue
            with store_of(other) as beside:
                same = peer(beside, *place) if place is not None else None
                if same is not None:
                    links.append(ArrowOut(kind="collective", source=own, target=_placed(other, same)))
                for one in partners(store, chosen, beside):
                    ends = (_placed(other, one), own) if is_work else (own, _placed(other, one))
                    links.append(ArrowOut(kind="launch", source=ends[0], target=ends[1]))
    return ArrowsOut(arrows=links)


@router.get(
    "/{trace_id}/layers/{int:layer_id}/flame",
    response={200: FlameOut, **EXPENSIVE},
    summary="Where the time of a window goes, by what called what",
)
@expensive
def read_flame(
    request: HttpRequest,
    trace_id: str,
    layer_id: int,
    begin: From,
    end: To,
    by: Annotated[flame.By, Query("operators")] = "operators",
) -> FlameOut:
    """Return the tree of a flame graph and names by their own time, of one file's threads together."""
    _check_window(begin, end)
    with store_of(layer_for(request, trace_id, layer_id)) as store:
        try:
            tree = flame.flame(store, begin=begin, end=end, by=by)
        except TooManyEvents as error:
            raise RequestProblem(422, str(error), field="from") from error
    return FlameOut(
        begin=str(begin),
        end=str(end),
        total=tree.total,
        events=tree.events,
        left_out=tree.left_out,
        nodes=[
            NodeOut(
                name=one.name,
                short=readable(one.name, one.category),
                category=_word(one.category),
                parent=one.parent,
                depth=one.depth,
                count=one.count,
                total=one.total,
                own=one.own,
            )
            for one in tree.nodes
        ],
        names=[
            NameTimeOut(
                name=one.name,
                short=readable(one.name, one.category),
                category=_word(one.category),
                count=one.count,
                total=one.total,
                own=one.own,
                callers=[CallerOut(name=caller.name, own=caller.own) for caller in one.callers],
            )
            for one in tree.names
        ],
    )


@router.get("/{trace_id}/events", response={200: TableOut, **EXPENSIVE}, summary="Events of a window as a table")
@expensive
def read_events(
    request: HttpRequest,
    trace_id: str,
    begin: From,
    end: To,
    where: Where = "",
    sort: Sort = "length",
    order: Order = "desc",
    layer: LayerId = None,
    limit: Annotated[int, Query(200, ge=1, le=5000)] = 200,
) -> TableOut:
    """Return the events of a window that fulfil conditions (see docs/use/profile.md), the first ones of a sort."""
    count, rows = _table(request, trace_id, layer, (begin, end), where, sort=sort, order=order, limit=limit)
    return TableOut(count=count, rows=rows)


@router.get("/{trace_id}/events.csv", response={200: None, **EXPENSIVE}, summary="... as CSV", openapi_extra=CSV)
@expensive
def download_events(
    request: HttpRequest,
    trace_id: str,
    begin: From,
    end: To,
    where: Where = "",
    sort: Sort = "length",
    order: Order = "desc",
    layer: LayerId = None,
) -> HttpResponse:
    """Return up to 100,000 rows of the table, with full names; moments in Unix ns, lengths in ns."""
    _, rows = _table(request, trace_id, layer, (begin, end), where, sort=sort, order=order, limit=_MOST_CSV)
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(["layer", "id", "lane", "begin", "length", "name", "category", "bytes"])
    for row in rows:
        shown = [_plain(row.lane_name), row.begin, row.duration, _plain(row.name), row.category, row.bytes]
        writer.writerow([row.layer, row.id, *shown])
    headers = {"Content-Disposition": f'attachment; filename="{trace_id}-events.csv"'}
    return HttpResponse(text.getvalue(), content_type="text/csv; charset=utf-8", headers=headers)


def _plain(text: str) -> str:
    """Return a text that no spreadsheet takes for a formula."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text


def _table(
    request: HttpRequest,
    trace_id: str,
    layer: int | None,
    window: tuple[int, int],
    where: str,
    *,
    sort: event_table.Sort,
    order: str,
    limit: int,
) -> tuple[int, list[TableRowOut]]:
    """Return how many events fulfil the conditions, and the first of them of all layers together."""
    begin, end = window
    _check_window(begin, end)
    try:
        conditions: Sequence[EventCondition] = parsed(where)
    except WrongCondition as error:
        raise RequestProblem(422, str(error), field="where") from error
    is_descending = order == "desc"
    count = 0
    events: list[TableRowOut] = []
    for row in ready_layers(trace_for(request, trace_id), layer):
        with store_of(row) as store:
            page = event_table.page(
                store, conditions, begin=begin, end=end, sort=sort, is_descending=is_descending, limit=limit
            )
            lanes = [lane_name(lane) for lane in store.lanes]
        count += page.count
        events += [_row(row, one, lanes[one.lane]) for one in page.rows]
    events.sort(key=_SORT_KEYS[sort], reverse=is_descending)
    return count, events[:limit]


_SORT_KEYS: dict[event_table.Sort, Callable[[TableRowOut], Any]] = {
    "begin": lambda row: int(row.begin),
    "length": lambda row: row.duration,
    "name": lambda row: row.name,
    "category": lambda row: Category[row.category.upper()],
    "lane": lambda row: (row.layer, row.lane),
    "bytes": lambda row: row.bytes,
}


def _row(layer: Layer, row: Row, lane: str) -> TableRowOut:
    return TableRowOut(
        layer=layer.pk,
        id=row.id,
        lane=row.lane,
        depth=row.depth,
        begin=str(row.begin),
        duration=row.length,
        name=row.name,
        short=readable(row.name, Category[row.category.upper()]),
        category=row.category,
        lane_name=lane,
        bytes=row.bytes,
    )


@router.get(
    "/{trace_id}/critical-path", response={200: CriticalPathOut, **EXPENSIVE}, summary="The critical path of a window"
)
@expensive
def read_critical_path(request: HttpRequest, trace_id: str, begin: From, end: To) -> CriticalPathOut:
    """Return the chain of work that the last event of a window waited for, over launches, streams and ranks."""
    _check_window(begin, end)
    rows = list(ready_layers(trace_for(request, trace_id), None))
    with ExitStack() as stack:
        stores = [stack.enter_context(store_of(row)) for row in rows]
        timed = [(row, store) for row, store in zip(rows, stores, strict=True) if store.facts.has_clock]
        try:
            works = critical_path.read_workers([store for _, store in timed], begin=begin, end=end)
            path = critical_path.critical_path(works, begin=begin, end=end)
        except TooManyEvents as error:
            raise RequestProblem(422, str(error), field="from") from error
    return CriticalPathOut(
        begin=str(begin),
        end=str(end),
        device_share=critical_path.device_share(path),
        segments=[
            SegmentOut(
                what=one.what,
                layer=timed[one.worker][0].pk,
                lane=one.lane,
                name=one.name,
                short=readable(one.name, one.category),
                category=_word(one.category),
                begin=str(one.begin),
                duration=one.end - one.begin,
            )
            for one in path
        ],
    )


@router.get(
    "/{trace_id}/layers/{int:layer_id}/tracks", response={200: TracksOut, **REFUSALS}, summary="Curves of a layer"
)
def list_tracks(request: HttpRequest, trace_id: str, layer_id: int) -> TracksOut:
    """Return the curves that can be made of what a layer recorded."""
    with store_of(layer_for(request, trace_id, layer_id)) as store:
        curves = queue.tracks(store)
    return TracksOut(
        tracks=[TrackOut(**{name: getattr(one, name) for name in TrackOut.model_fields}) for one in curves]
    )


@router.get(
    "/{trace_id}/layers/{int:layer_id}/tracks/{key}",
    response={200: CounterSamplesOut, **EXPENSIVE},
    summary="A curve over time",
)
@expensive
def read_track(
    request: HttpRequest,
    trace_id: str,
    layer_id: int,
    key: str,
    begin: From,
    end: To,
    points: Annotated[int, Query(2000, ge=10, le=20_000)] = 2000,
) -> HttpResponse:
    """Return a curve in a window, as samples are: ns after `from`, thinned so that extremes stay."""
    _check_window(begin, end)
    with store_of(layer_for(request, trace_id, layer_id)) as store:
        track = next((one for one in queue.tracks(store) if one.key == key), None)
        if track is None:
            raise Http404
        try:
            times, values = queue.curve(store, track, begin=begin, end=end)
        except TooManyEvents as error:
            raise RequestProblem(422, str(error), field="from") from error
    shown, shown_values = thinned(times, values, points)
    body = {"begin": str(begin), "t": (shown - begin).tolist(), "v": shown_values.tolist(), "of": len(times)}
    return HttpResponse(orjson.dumps(body), content_type="application/json")


def _check_window(begin: int, end: int) -> None:
    if end <= begin:
        raise RequestProblem(422, f"to: {end} is not after from, {begin}.", field="to")


def _word(category: int) -> str:
    return Category(category).name.lower()


def _event(store: Store, number: int) -> StoredEvent:
    """Return an event by its number. Raises: Http404."""
    if not 0 <= number < store.facts.events:
        raise Http404
    return store.event(number)


def _placed(layer: Layer, event: StoredEvent) -> PlacedEventOut:
    return PlacedEventOut(
        layer=layer.pk,
        id=event.id,
        lane=event.lane,
        depth=event.depth,
        begin=str(event.ts),
        duration=event.dur,
        name=event.name,
        category=event.category,
    )
