"""What the analysis says of traces, and what another trace does differently."""

from collections.abc import Iterable
from typing import Annotated

from django.http import HttpRequest
from ninja import Field, Query, Router, Schema
from pydantic import BeforeValidator

from console.api.problem import EXPENSIVE, ProblemsOut, RequestProblem
from console.api.traces.traces import API_PATIENCE, trace_for
from console.budget import expensive
from console.trace_use import TYPES, Wrong, asked_of, by_model, by_shapes, filled, in_update
from jobs.diagnosis.model_facts import FormulaInput, OfRun, of_run
from jobs.traces.files import NoAnswer, ready_layers
from jobs.traces.summary import NothingToCompare, compare, summary_of
from profiling.analysis.budget import BudgetPart
from profiling.analysis.communication import Communication, Late
from profiling.analysis.difference import Item
from profiling.analysis.flops import FlopCount, Use
from profiling.analysis.frames import FrameTime
from profiling.analysis.kernels import Copies, Kernel, Launches
from profiling.analysis.memory import AllocationSite
from profiling.analysis.operators import Operator
from profiling.analysis.summary import TraceSummary, WorkerSummary

router = Router(tags=["traces"])

_LARGEST = 2**63 - 1

First = Annotated[bool, Query(False, description="leave out the first step, which often pays for warming up")]
WorkerName = Annotated[str, Query("", max_length=40, description="role-rank, as in the summary's workers")]
Moment = Annotated[int | None, Query(None, ge=0, le=_LARGEST)]


MomentText = Annotated[str, BeforeValidator(str), Field(description="Unix ns")]
"""A moment as a text: numbers of JSON would round it."""


class StepBudgetOut(Schema):
    """One step (-1: the whole window): its parts add up to `wall`, in ns."""

    step: int
    begin: MomentText
    wall: int
    parts: list[BudgetPart]


class WorkerBudgetOut(Schema):
    """One worker step by step. `is_recorded`: by its trace, not by its phases alone."""

    role: str
    rank: int
    is_recorded: bool
    has_device: bool
    steps: list[StepBudgetOut]


class GapOut(Schema):
    """An idle stretch of a device. `inside`: the CPU's innermost range or operator in the middle of it, "" where none
    was recorded; `phase`: the worker's phase there, "" outside of all."""

    begin: MomentText
    end: MomentText
    cause: str
    inside: str
    phase: str


class TailOut(Schema):
    """The long tail of one rollout, from `tail` to `end`; tokens are null where nobody told them."""

    begin: MomentText
    tail: MomentText
    end: MomentText
    p50_tokens: int | None
    p99_tokens: int | None


class RolloutOut(Schema):
    """Generation. `points`: requests in the pass that begins at a moment, at most 400."""

    passes: int
    most_requests: int
    mean_requests: float
    tokens: int
    seconds: float
    tails: list[TailOut]
    points: list[tuple[MomentText, int]]


class CurveOut(Schema):
    """One quantity of memory over time: `points` are moments and bytes, at most 400 of the `samples`, with every peak
    kept; `at_peak`: bytes when the allocated memory of the device was highest."""

    name: str
    samples: int
    points: list[tuple[MomentText, float]]
    peak: float
    peak_at: MomentText
    at_peak: float


class MemoryOut(Schema):
    """Memory of one device (-1: the CPU), in bytes. `peak_at` is 0 where only the state at the end is known. `holders`:
    who held most at the peak where its moment is known (`is_at_peak`), else at the end."""

    device: int
    curves: list[CurveOut]
    peak: float
    peak_at: MomentText
    reserved: float | None
    fragmentation: float | None = Field(description="The share of reserved memory that was not allocated at the peak")
    role: str
    rank: int
    holders: list[AllocationSite]
    is_at_peak: bool


class WorkerOut(Schema):
    """What one worker did; times in ns, see docs/use/profile.md. Null: nothing of the kind was recorded."""

    role: str
    rank: int
    label: str
    device_name: str
    has_device: bool
    recorded: int
    busy: int
    operators: list[Operator]
    ranges: list[Operator]
    kernels: list[Kernel]
    copies: list[Copies]
    launches: Launches | None
    communication: Communication | None
    device_by_phase: dict[str, int]
    idle: dict[str, int]
    gaps: list[GapOut]
    python: list[FrameTime] = Field(description="Functions of the program behind idle gaps of 1 ms or more")
    has_stacks: bool
    rollout: RolloutOut | None
    flops: FlopCount | None
    peak_share: Use | None = Field(description="of one device's peak, by the recorded sizes of products")

    @classmethod
    def of(cls, worker: WorkerSummary, peak_share: Use | None) -> "WorkerOut":
        """Return a worker as the API gives it."""
        return cls(
            role=worker.role,
            rank=worker.rank,
            label=worker.label,
            device_name=worker.device_name,
            has_device=worker.has_device,
            recorded=worker.recorded,
            busy=worker.busy,
            operators=list(worker.operators),
            ranges=list(worker.ranges),
            kernels=list(worker.kernels),
            copies=list(worker.copies),
            launches=worker.launches,
            communication=worker.communication,
            device_by_phase=worker.device_by_phase,
            idle=worker.idle,
            gaps=[GapOut.model_validate(gap) for gap in worker.gaps],
            python=list(worker.python),
            has_stacks=worker.has_stacks,
            rollout=None if worker.rollout is None else RolloutOut.model_validate(worker.rollout),
            flops=worker.flops,
            peak_share=peak_share,
        )


class AnalysisOut(Schema):
    """A window of a trace. `path` is the budget along the critical path, [] without phases of a run."""

    begin: MomentText
    end: MomentText
    events: int
    asked_end: MomentText = Field(description="of the window that was asked for: after `end` where it is cut")
    is_cut: bool = Field(description="too many events: only the window's beginning is used")
    has_steps: bool
    has_clock: bool = Field(description="false: only how long things ran is known, not when; there is no budget then")
    path: list[StepBudgetOut]
    budget: list[WorkerBudgetOut]
    workers: list[WorkerOut]
    late: list[Late]
    memory: list[MemoryOut]
    mfu: Use | None = Field(description="with the model that was given")
    hfu: Use | None
    update_mfu: Use | None = Field(description="over the seconds of the update alone; null without phases of a run")
    formula: str
    from_run: list[FormulaInput] = Field(description="inputs of the formula that were not given: the run knows them")
    notes: list[str]


class ItemOut(Schema):
    """What one kind of work takes per step of each trace, in ns; `share` of the difference in step time."""

    kind: str
    name: str
    before: float
    after: float
    delta: float
    calls_before: float
    calls_after: float
    share: float | None
    change: str = Field(description="added, removed, slower, faster or same")


class DifferenceOut(Schema):
    """The other trace against this one, per step, in ns. items + rest + unexplained add up to after - before.

    `is_cut`: one of them holds too many events, so that only its first steps are compared.
    """

    worker: str
    other_worker: str
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
    "/{trace_id}/analysis",
    response={200: AnalysisOut, 503: ProblemsOut, **EXPENSIVE},
    summary="Where the time of a trace goes",
)
@expensive
def analysis(
    request: HttpRequest,
    trace_id: str,
    begin: Annotated[int | None, Query(None, alias="from", ge=0, le=_LARGEST, description="Unix ns")] = None,
    end: Annotated[int | None, Query(None, alias="to", ge=0, le=_LARGEST, description="Unix ns")] = None,
    drop_first: First = False,
    accelerator: Annotated[str, Query("", max_length=200)] = "",
    dtype: Annotated[str, Query("", description=f"{', '.join(TYPES)}; of the run, else bf16")] = "",
    devices: Annotated[int | None, Query(None, ge=1, le=1_000_000, description="of the run, else 1")] = None,
    parameters: Annotated[float, Query(0, ge=0, le=1e14, description="0: of the run; so for all below")] = 0,
    tokens: Annotated[float, Query(0, ge=0, le=1e12, description="of a step, on all devices")] = 0,
    context: Annotated[float, Query(0, ge=0, le=1e8, description="tokens of a document")] = 0,
    layers: Annotated[int, Query(0, ge=0, le=10_000)] = 0,
    width: Annotated[float, Query(0, ge=0, le=1e6, description="heads times head size")] = 0,
    recompute: Annotated[str, Query("", max_length=20)] = "",
) -> AnalysisOut:
    """Return the budget of each step, kernels, operators, communication, idle time, rollout, memory and MFU."""
    trace = trace_for(request, trace_id)
    window = None
    if begin is not None or end is not None:
        if begin is None or end is None or end <= begin:
            raise RequestProblem(422, "to: give both `from` and `to`, the second after the first.", field="to")
        window = (begin, end)
    if not ready_layers(trace):
        raise RequestProblem(409, "No file of this trace has been imported yet. Ask again when one is ready.")
    try:
        summary = summary_of(trace, window=window, drop_first=drop_first, patience=API_PATIENCE)
    except NoAnswer as error:
        raise RequestProblem(error.status, str(error)) from error
    texts = {
        "accelerator": accelerator,
        "dtype": dtype,
        "recompute": recompute,
        "devices": str(devices) if devices else "",
        **{
            key: f"{value!r}" if value else ""
            for key, value in (
                ("parameters", parameters),
                ("tokens", tokens),
                ("context", context),
                ("layers", layers),
                ("width", width),
            )
        },
    }
    run = of_run(trace, [step.number for step in summary.budget.steps])
    try:
        return _analysis_out(summary, filled(texts, run), run)
    except Wrong as error:
        raise RequestProblem(422, problems=error.problems) from error


def _analysis_out(summary: TraceSummary, texts: dict[str, str], run: OfRun) -> AnalysisOut:
    names = [one.device_name for one in summary.workers if one.device_name]
    query = asked_of(texts, names[0] if names else "")
    mfu, hfu, formula = by_model(query, summary)
    return AnalysisOut(
        begin=str(summary.begin),
        end=str(summary.end),
        events=summary.events,
        asked_end=str(summary.asked_end),
        is_cut=summary.is_cut,
        has_steps=summary.has_steps,
        has_clock=summary.has_clock,
        path=[StepBudgetOut.model_validate(step) for step in summary.budget.path],
        budget=[WorkerBudgetOut.model_validate(one) for one in summary.budget.workers],
        workers=[
            WorkerOut.of(one, by_shapes(asked_of(texts, one.device_name), summary, one)) for one in summary.workers
        ],
        late=list(summary.late),
        memory=[MemoryOut.model_validate(one) for one in summary.memory],
        mfu=mfu,
        hfu=hfu,
        update_mfu=in_update(query, summary, mfu),
        formula=formula,
        from_run=[one for one in run.inputs if texts.get(one.key) == one.value],
        notes=list(run.notes),
    )


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
) -> DifferenceOut:
    """Return what explains the difference in step time from this trace to the other one, largest first."""
    one, second = trace_for(request, trace_id), trace_for(request, other)
    try:
        compared = compare(
            one,
            second,
            worker=worker_of(worker),
            other_worker=worker_of(other_worker),
            drop_first=drop_first,
            patience=API_PATIENCE,
        )
    except NothingToCompare as error:
        raise RequestProblem(409, str(error)) from error
    except NoAnswer as error:
        raise RequestProblem(error.status, str(error)) from error
    difference = compared.difference
    return DifferenceOut(
        worker=_name(compared.worker),
        other_worker=_name(compared.other_worker),
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


def worker_of(text: str) -> tuple[str, int] | None:
    """Return the role and rank that "policy-0" means, None for nothing. Raises: RequestProblem."""
    role, dash, rank = text.rpartition("-")
    if not text:
        return None
    if not dash or not rank.isascii() or not rank.isdigit() or len(rank) > 9:
        raise RequestProblem(422, f"worker: {text!r} is no role and rank, like policy-0.", field="worker")
    return role, int(rank)


def _name(worker: tuple[str, int]) -> str:
    return f"{worker[0]}-{worker[1]}"
