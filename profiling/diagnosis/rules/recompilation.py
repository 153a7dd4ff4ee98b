"""Something is compiled again and again while steps run."""

import re
from dataclasses import dataclass

import numpy as np

from profiling.analysis.intervals import Bools, Intervals, clipped, total, union
from profiling.analysis.repetition import found_steps
from profiling.diagnosis.finding import InsufficientData, KnobChange, Observation, Rule
from profiling.diagnosis.host_work import marked_steps, working_lanes
from profiling.evidence import Evidence, RecordedTrace
from profiling.trace.category import Category
from profiling.trace.launches import launch_names
from profiling.trace.store import Columns

_SPANS = re.compile(
    r"^(?!.*(?:Torch-Compiled Region|CompiledFxGraph|CompiledFunction|Cache Lookup|Runtime Wrapper)).*"
    r"(?:\bcompile_inner\b|\bentire_frame_compile\b|\bbackend_compile\b|\bcompile_fx|\binductor_codegen\b"
    r"|\basync_compile\.(?:wait|precompile)\b|\(dynamo_timed\)|\btriton\b.*\bcompil(?:e|ing)\b)"
)
"""What torch and Triton record around compiling, without calls of what was compiled."""
_LOADS = re.compile(r"^(?:cu|hip)\w*(?:Module|Library)Load")
_OVERHEADS = re.compile(r"^(?:module loading|driver jit compiler)", re.I)
"""Kinds of overhead of nsys that are no work of its own."""
_FRAMES = re.compile(
    r"torch/_dynamo/convert_frame\.py\(\d+\): "
    r"|torch/_inductor/compile_fx\.py\(\d+\): \w*(?:compil|codegen)"
    r"|triton/compiler/(?:\w+/)*\w+\.py\(\d+\): (?:compile|make_\w+|ast_to_ttir)\b"
)
"""Functions that compile; some of these files hold functions that run what was compiled, too."""
_ONCE = (_LOADS, _OVERHEADS)
"""What every program pays before it launches anything: that code is not loaded again."""
_KINDS = (
    (_SPANS, (Category.RANGE, Category.OPERATOR, Category.OTHER), True),
    (_LOADS, (Category.RUNTIME,), False),
    (_OVERHEADS, (Category.OVERHEAD,), False),
    (_FRAMES, (Category.PYTHON,), True),
)
"""Names, the categories in which they mean compiling, and whether on threads at work alone."""
_NAMES = re.compile("|".join(f"(?:{pattern.pattern})" for pattern, _categories, _of_threads in _KINDS), re.I)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Compiling:
    """Spans of compiling in one file: when, of `window` ns, how many, and the longest."""

    recorded: RecordedTrace
    moments: Intervals
    window: int
    calls: int
    name: str
    begin: int
    end: int


def _evaluate(evidence: Evidence) -> Observation | InsufficientData:
    files = [_compiling(one) for one in evidence.recorded if one.shows_work]
    if not files:
        return InsufficientData(what="trace")
    longest = max(files, key=lambda one: one.end - one.begin)
    return Observation(
        value=sum(total(one.moments) for one in files) / max(1, sum(one.window for one in files)),
        begin=longest.begin,
        end=longest.end,
        words={"calls": sum(one.calls for one in files), "name": longest.name[:80]},
        role=longest.recorded.role,
        rank=longest.recorded.rank,
    )


def _compiling(recorded: RecordedTrace) -> _Compiling:
    """Return when a file was compiling, after its first step if it marks more than one, or repeats itself."""
    store = recorded.store
    ends = marked_steps(recorded)[1].tolist() or [step.end for step in found_steps(store, store.lanes)]
    begin = ends[0] if len(ends) > 1 else recorded.begin
    end = max(recorded.end, begin + 1)
    rows = store.sql(
        "SELECT lane, ts, dur, name, cat FROM ev WHERE list_contains(?, name) AND ts < ? AND ts >= ?",
        [[i for i, text in enumerate(store.names) if _NAMES.search(text)], end, begin],
    )
    keep = _is_work(recorded, rows)
    start, duration, name = rows["ts"][keep], rows["dur"][keep], rows["name"][keep]
    at = int(duration.argmax()) if len(start) else -1
    return _Compiling(
        recorded=recorded,
        moments=clipped(union(start, start + duration), begin, end),
        window=end - begin,
        calls=len(start),
        name=store.names[int(name[at])] if len(start) else "",
        begin=int(start[at]) if len(start) else 0,
        end=int(start[at] + duration[at]) if len(start) else 0,
    )


def _is_work(recorded: RecordedTrace, rows: Columns) -> Bools:
    """Return which of the columns' events are work of compiling [n]: of names of one kind those of its categories.

    Spans and frames count on threads that launch or run operators, loading once something has been launched.
    """
    names = recorded.store.names
    is_at_work = np.isin(rows["lane"], working_lanes(recorded))
    keep = np.zeros(len(rows["ts"]), np.bool_)
    for pattern, categories, of_threads in _KINDS:
        chosen = [i for i in np.unique(rows["name"]).tolist() if pattern.search(names[i])]
        is_kind = np.isin(rows["name"], chosen) & np.isin(rows["cat"], [int(one) for one in categories])
        is_kind &= is_at_work if of_threads else True
        if pattern in _ONCE and is_kind.any():  # else it need not be asked, of all events
            is_kind &= rows["ts"] >= _first_launch(recorded)
        keep |= is_kind
    return keep


def _first_launch(recorded: RecordedTrace) -> int:
    """Return when the first call that gives a device work begins, else when the file begins. [Unix ns]"""
    query = "SELECT coalesce(min(ts), ?) AS at FROM ev WHERE cat = ? AND list_contains(?, name)"
    names = launch_names(recorded.store.names)
    return int(recorded.store.sql(query, [recorded.begin, int(Category.RUNTIME), names])["at"][0])


PLUGIN = Rule(
    title="Recompilation",
    question="why",
    definition="Time in which a thread that launches or runs operators compiles (spans and frames of Dynamo, Inductor "
    "and Triton) or code is loaded, after the first step, marked or found by repetition, divided by the recorded time "
    "after it; of loading what comes after the first launch.",
    unit="share",
    watch=0.02,
    bad=0.10,
    source="ours: after warm-up nothing should be compiled",
    needs=("trace",),
    fires="{value} of the recorded time is compiling: {calls} spans, the longest in {name}.",
    clear="{value} of the recorded time is compiling.",
    advice="Pad lengths to a few sizes, mark dimensions as dynamic, and warm up every shape before step 1.",
    changes=(
        KnobChange("kernels.torch_compile", "off"),
        KnobChange("memory.pad_to_length", "on"),
        KnobChange("train.packing", "on"),
    ),
    evaluate=_evaluate,
)
