"""What another trace does differently, how far the two can be compared, and the verdict."""

from collections.abc import Iterable
from typing import Annotated

from django.http import HttpRequest
from ninja import Field, Query, Router, Schema

from console.api.problem import EXPENSIVE, ProblemsOut, RequestProblem
from console.api.traces.trace_summary import LARGEST, First, window_of
from console.api.traces.traces import API_PATIENCE, trace_for
from console.budget import expensive
from console.labels.verdicts import differs_beforehand, verdict_text
from jobs.comparison.trace_verdict import verdict_of
from jobs.traces.difference import (
    Compared,
    NothingToCompare,
    Per,
    TraceComparison,
    Worker,
    compare,
    worker_key,
    worker_of,
)
from jobs.traces.files import NoAnswer
from profiling.analysis.comparability import Factor
from profiling.analysis.difference import Item

router = Router(tags=["traces"])

WorkerName = Annotated[str, Query("", max_length=40, description="role-rank, as in the summary's workers")]
Moment = Annotated[int | None, Query(None, ge=0, le=LARGEST)]
Tokens = Annotated[float, Query(0, ge=0, le=1e12)]


class ItemOut(Schema):
    """What one kind of work takes per unit of each trace, in ns; `share` of the difference of units."""

    kind: str
    name: str
    before: float
    after: float
    delta: float
    calls_before: float
    calls_after: float
    share: float | None
    change: str = Field(description="added, removed, slower, faster or same")


class TraceVerdictOut(Schema):
    """`word`: cannot (be compared), same_recording, none (no difference), too_small (to say), slower, faster, or shares
    (per second only shares can differ). `change`: after / before - 1, with its 95 % interval by the spread of steps.
    `comparability`: a product of factors from 0 to 1, below 0.5 `cannot`; `lowered`: those below 1, the lowest first.
    """

    word: str
    change: float | None
    low: float | None
    high: float | None
    sentence: str
    comparability: float
    lowered: list[Factor]


class DifferenceOut(Schema):
    """The other trace against this one, in ns per unit. items + rest + unexplained add up to after - before.

    `of`: work (kernels, operators, idle causes), or functions where one side holds stacks alone. `per`: what a unit is
    (step, window, second, token); `sources`: what the steps of each trace are from (phases, marks, repetition, window).
    `beforehand` names devices and versions that differ. `is_cut`: one of them holds too many events, so that only its
    first part is compared.
    """

    worker: str
    other_worker: str
    of: str
    per: str
    sources: tuple[str, str]
    devices: tuple[str, str]
    versions: dict[str, tuple[str, str]]
    beforehand: str
    verdict: TraceVerdictOut
    before: float
    after: float
    steps_before: int
    steps_after: int
    is_cut: bool
    items: list[ItemOut]
    num_items: int
    rest: float
    unexplained: float
    kinds: list[ItemOut]
    phases: list[ItemOut]
    operators: list[ItemOut]


@router.get(
    "/{trace_id}/difference",
    response={200: DifferenceOut, 503: ProblemsOut, **EXPENSIVE},
    summary="What another trace does differently",
)
@expensive
def trace_difference(
    request: HttpRequest,
    trace_id: str,
    other: Annotated[str, Query(..., max_length=40, description="id of the trace to compare with this one")],
    worker: WorkerName = "",
    other_worker: WorkerName = "",
    drop_first: First = False,
    per: Annotated[Per, Query("", description="step where both have steps, else window")] = "",
    begin: Annotated[int | None, Query(None, alias="from", ge=0, le=LARGEST, description="Unix ns")] = None,
    end: Annotated[int | None, Query(None, alias="to", ge=0, le=LARGEST, description="Unix ns")] = None,
    other_from: Moment = None,
    other_to: Moment = None,
    tokens: Annotated[
        float,
        Query(0, ge=0, le=1e12, description="of a step (of the window, without steps); 0: as an engine's passes tell"),
    ] = 0,
    other_tokens: Tokens = 0,
) -> DifferenceOut:
    """Return what explains the difference from this trace to the other one, largest first, and the verdict."""
    one, second = trace_for(request, trace_id), trace_for(request, other)
    before = Compared(worker=_worker(worker), window=window_of(begin, end, "to"), tokens=tokens)
    after = Compared(
        worker=_worker(other_worker), window=window_of(other_from, other_to, "other_to"), tokens=other_tokens
    )
    try:
        compared = compare(
            one, second, before=before, after=after, drop_first=drop_first, per=per, patience=API_PATIENCE
        )
    except NothingToCompare as error:
        raise RequestProblem(409, str(error)) from error
    except NoAnswer as error:
        raise RequestProblem(error.status, str(error)) from error
    return _out(compared)


def _out(compared: TraceComparison) -> DifferenceOut:
    difference, fit, verdict = compared.difference, compared.comparability, verdict_of(compared)
    return DifferenceOut(
        worker=worker_key(compared.worker),
        other_worker=worker_key(compared.other_worker),
        of=compared.of,
        per=compared.per,
        sources=compared.sources,
        devices=fit.devices,
        versions=dict(fit.versions),
        beforehand=differs_beforehand(fit),
        verdict=TraceVerdictOut(
            word=verdict.word,
            change=verdict.change,
            low=verdict.low,
            high=verdict.high,
            sentence=verdict_text(verdict, fit),
            comparability=fit.score,
            lowered=list(fit.lowered),
        ),
        before=difference.before,
        after=difference.after,
        steps_before=difference.steps_before,
        steps_after=difference.steps_after,
        is_cut=compared.is_cut,
        items=_items(difference.items),
        num_items=difference.num_items,
        rest=difference.rest,
        unexplained=difference.unexplained,
        kinds=_items(difference.kinds),
        phases=_items(difference.phases),
        operators=_items(difference.operators),
    )


def _items(items: Iterable[Item]) -> list[ItemOut]:
    return [ItemOut.model_validate(each) for each in items]


def _worker(key: str) -> Worker | None:
    """Return the worker that an address names, None for none. Raises: RequestProblem."""
    worker = worker_of(key)
    if key and worker is None:
        raise RequestProblem(422, f"worker: {key!r} is no role and rank, like policy-0.", field="worker")
    return worker
