"""The stores of a trace's layers, and the questions that requests ask of all of them alike."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated

from django.http import Http404
from ninja import Query

from console.api.problem import RequestProblem
from jobs.models import Layer, Trace
from jobs.traces.files import damaged
from jobs.traces.imports import store_path
from profiling.trace.store import NotAStore, Store, is_of_store, is_whole, opened

MAX_INT64 = 2**63 - 1
_MOST_LANES = 4096

From = Annotated[int, Query(..., alias="from", ge=0, le=MAX_INT64, description="Unix ns")]
To = Annotated[int, Query(..., alias="to", ge=0, le=MAX_INT64, description="Unix ns")]
Lanes = Annotated[str, Query("", max_length=20_000, description="numbers of lanes, separated by commas; empty: all")]
LayerId = Annotated[int | None, Query(None, ge=1, le=2**62, description="only this layer")]


def ready_layers(trace: Trace, layer_id: int | None) -> Iterator[Layer]:
    """Yield the layers that can be looked at, or the one of them that is named, by number."""
    rows = trace.layers.select_related("trace", "artifact").filter(state="ready").order_by("pk")
    yield from rows if layer_id is None else rows.filter(pk=layer_id)


def chosen_lanes(text: str) -> Sequence[int] | None:
    """Return the lanes that a request names, None for all. Raises: RequestProblem."""
    parts = [part for part in text.split(",") if part]
    if any(not part.isascii() or not part.isdigit() or len(part) > 9 for part in parts) or len(parts) > _MOST_LANES:
        raise RequestProblem(422, f"lanes: {text[:80]!r} is no list of numbers separated by commas.", field="lanes")
    return [int(part) for part in parts] or None


@contextmanager
def store_of(layer: Layer) -> Iterator[Store]:
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
