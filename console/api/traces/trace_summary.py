"""What the analysis says of traces."""

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
from jobs.traces.summary import summary_of
from profiling.analysis.budget import BudgetPart
from profiling.analysis.communication import Communication, Late
from profiling.analysis.flops import FlopCount, Use
from profiling.analysis.frames import FrameTime
from profiling.analysis.kernels import Copies, Kernel, Launches
from profiling.analysis.memory import AllocationSite
from profiling.analysis.operators import Operator
from profiling.analysis.stretches import By
from profiling.analysis.summary import TraceSummary, WorkerSummary

router = Router(tags=["traces"])

LARGEST = 2**63 - 1

First = Annotated[bool, Query(False, description="leave out the first step, which often pays for warming up")]
StepsOrWindow = Annotated[By, Query("steps", description="per step where there are any, or the window as one")]


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
    """The long tail of one rollout, from `tail` to `end`."""

    begin: MomentText
    tail: MomentText
    end: MomentText


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


class OutsideOut(Schema):
    """What the steps of a worker do not hold, in ns. `outside` of `busy`: the device's time in the window that lies in
    no step. `before`: operations that were launched before the recording. `host_step`: the mean step of the CPU alone;
    `own_step`: that of this worker, to the end of the last device work that it launched. `dropped`: steps at the end
    whose device work was not recorded."""

    busy: int
    outside: int
    share: float
    before: int
    before_ns: int
    host_step: float | None
    own_step: float | None
    dropped: list[int]


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
    outside: OutsideOut | None = Field(description="what lies beside the steps; null without steps")

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
            outside=None if worker.outside is None else OutsideOut.model_validate(worker.outside),
        )


class AnalysisOut(Schema):
    """A window of a trace. `path` is the budget along the critical path, [] without phases of a run."""

    begin: MomentText
    end: MomentText
    events: int
    asked_end: MomentText = Field(description="of the window that was asked for: after `end` where it is cut")
    is_cut: bool = Field(description="too many events: only the window's beginning is used")
    has_steps: bool
    source: str = Field(
        description="what a step is: phases of the run, marks in the trace, a repetition that was found, or the window"
    )
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


@router.get(
    "/{trace_id}/analysis",
    response={200: AnalysisOut, 503: ProblemsOut, **EXPENSIVE},
    summary="Where the time of a trace goes",
)
@expensive
def analysis(
    request: HttpRequest,
    trace_id: str,
    begin: Annotated[int | None, Query(None, alias="from", ge=0, le=LARGEST, description="Unix ns")] = None,
    end: Annotated[int | None, Query(None, alias="to", ge=0, le=LARGEST, description="Unix ns")] = None,
    drop_first: First = False,
    by: StepsOrWindow = "steps",
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
    window = window_of(begin, end, "to")
    if not ready_layers(trace):
        raise RequestProblem(409, "No file of this trace has been imported yet. Ask again when one is ready.")
    try:
        summary = summary_of(trace, window=window, drop_first=drop_first, by=by, patience=API_PATIENCE)
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
    run = of_run(trace, summary.numbers)
    try:
        return _analysis_out(summary, filled(texts, run), run)
    except Wrong as error:
        raise RequestProblem(422, problems=error.problems) from error


def window_of(begin: int | None, end: int | None, last: str) -> tuple[int, int] | None:
    """Return a window, None where neither end is given; `last` is the field of its end. Raises: RequestProblem."""
    if begin is None and end is None:
        return None
    if begin is None or end is None or end <= begin:
        first = last.replace("to", "from")
        raise RequestProblem(422, f"{last}: give both `{first}` and `{last}`, the second after the first.", field=last)
    return begin, end


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
        source=summary.source,
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
