"""The device has nothing to do for much of the time, and mostly for which cause."""

from profiling.analysis.idle import CAUSES, functions_of, idle_by_cause, longest_gaps
from profiling.analysis.intervals import interval
from profiling.analysis.phases import WorkerPhases
from profiling.diagnosis.budgets import FileBudget, budgets
from profiling.diagnosis.finding import InsufficientData, Observation, Rule
from profiling.evidence import Evidence
from profiling.trace.category import Category

_BUSY = ("compute", "communication", "copy")
_SHORTEST = 10_000
"""Of a shorter recording no share means anything. [ns]"""
_CALLED = {
    "dependency": "waiting for another stream",
    "profiler": "the profiler",
    "collector": "the garbage collector",
    "data_wait": "waiting for data",
    "capture": "capturing launches into a graph",
    "synchronisation": "synchronisation",
    "launch": "the CPU, which launches late",
    "communication": "a collective on the CPU",
    "python": "Python code",
    "system": "calls of the operating system",
    "waiting": "waiting for others",
    "program": "the program between operators",
    "native": "other code on the CPU",
    "off_cpu": "a thread without a CPU",
    "unattributed": "a cause that was not recorded",
}


def _evaluate(evidence: Evidence) -> Observation | InsufficientData:
    # where copies or collectives alone were recorded, it is not known what else the device did
    with_device = [
        (one, _busy(one))
        for one in budgets(evidence)
        if len(one.work.device.of(Category.KERNEL)) and sum(one.by_kind.values()) >= _SHORTEST
    ]
    if not with_device:
        return InsufficientData(what="device_trace")
    idlest, busy = min(with_device, key=lambda pair: pair[1])
    return idlest.observation(busy, cause=_cause(idlest))


def _busy(one: FileBudget) -> float:
    whole = sum(one.by_kind.values())
    return sum(one.by_kind.get(kind, 0) for kind in _BUSY) / whole if whole else 1.0


def _cause(one: FileBudget) -> str:
    """Return the most frequent cause of idle time in words, with its function where frames or samples tell it."""
    idle = {kind: one.by_kind.get(kind, 0) for kind in CAUSES if kind not in _BUSY}
    most = max(idle, key=lambda kind: idle[kind])
    whole = sum(idle.values())
    if not whole:
        return "—"
    named = _function(one, most) if most in ("python", "native") else _range(one) if most == "launch" else ""
    return f"{_CALLED[most]} ({100 * idle[most] / whole:.0f} %{named})"


def _function(one: FileBudget, cause: str) -> str:
    causes = idle_by_cause(one.work, WorkerPhases(), interval(one.begin, one.end))
    functions = functions_of(cause, causes, one.work)
    return f", {functions[0].name[:120]}" if functions else ""


def _range(one: FileBudget) -> str:
    """Return the recorded range or operator that the CPU was in during the longest gap that it was late for."""
    gaps = longest_gaps(one.work, WorkerPhases(), interval(one.begin, one.end))
    inside = next((gap.inside for gap in gaps if gap.cause == "launch" and gap.inside), "")
    return f", longest in {inside[:80]}" if inside else ""


PLUGIN = Rule(
    title="Device idle",
    question="where",
    definition="Union of all kernels and copies of a device divided by the time of the marked steps, or, without "
    "steps, by the recorded time; of the idlest device.",
    unit="share",
    watch=0.80,
    bad=0.50,
    is_low_bad=True,
    source="the rule gpu-low-util of nsys (50 %); 80 % is ours",
    needs=("device_trace",),
    fires="{device} is busy for {value} of the time; most of the rest is {cause}.",
    clear="The idlest is {device}: busy for {value} of the time.",
    advice="Look at the rules below for the cause: launches, synchronisation, data, communication or another role.",
    evaluate=_evaluate,
)
