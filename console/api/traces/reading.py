"""What people read off a timeline: the arrows of an event, the line of code that it comes from."""

from django.http import Http404, HttpRequest
from ninja import Router

from console.api.problem import EXPENSIVE
from console.api.traces.reading_schema import ArrowOut, ArrowsOut, PlacedEventOut
from console.api.traces.stores import ready_layers, store_of
from console.api.traces.traces import layer_for
from console.budget import expensive
from jobs.models import Layer
from profiling.analysis.flows import arrows, is_collective, peer, place_of
from profiling.trace.store import Store, StoredEvent

router = Router(tags=["traces"])


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
        found = [
            ArrowOut(kind=one.kind, source=_placed(layer, one.source), target=_placed(layer, one.target))
            for one in arrows(store, event)
        ]
        place = place_of(store, chosen) if is_collective(chosen) else None
    if place is not None:
        own = _placed(layer, chosen)
        for other in ready_layers(layer.trace, None):
            if other.pk == layer.pk:
                continue
            with store_of(other) as store:
                same = peer(store, *place)
            if same is not None:
                found.append(ArrowOut(kind="collective", source=own, target=_placed(other, same)))
    return ArrowsOut(arrows=found)


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
