"""A device stood still for long at one stretch, and what the CPU did meanwhile."""

import numpy as np

from profiling.diagnosis.device_work import DeviceWork, devices
from profiling.diagnosis.finding import InsufficientData, Observation, Rule
from profiling.evidence import Evidence
from profiling.trace.category import Category

_NAMED = (
    Category.PHASE, Category.RANGE, Category.OPERATOR, Category.RUNTIME, Category.SYNC, Category.PYTHON,
    Category.BATCH, Category.SYSTEM,
)  # fmt: skip


def _evaluate(evidence: Evidence) -> Observation | InsufficientData:
    longest: tuple[int, int, DeviceWork] | None = None
    for work in devices(evidence):
        if len(work.start) < 2 or not work.has_kernels or not len(work.busy):
            continue  # of copies alone it is not known what else the device did
        begins, ends = work.busy.begin, work.busy.end
        at = int((begins[1:] - ends[:-1]).argmax()) if len(begins) > 1 else -1
        gap = (int(ends[at]), int(begins[at + 1])) if at >= 0 else (int(ends[0]), int(ends[0]))
        if longest is None or gap[1] - gap[0] > longest[1] - longest[0]:
            longest = *gap, work
    if longest is None:
        return InsufficientData(what="device_trace")
    begin, end, work = longest
    return Observation(
        value=max(0, end - begin) / 1e9,
        begin=begin,
        end=end,
        words={**work.words, "meanwhile": _meanwhile(work, begin, end) or "nothing that was recorded"},
        role=work.recorded.role,
        rank=work.recorded.rank,
    )


def _meanwhile(work: DeviceWork, begin: int, end: int) -> str:
    """Return the name of the shortest recorded range of the process that covers most of the gap."""
    store = work.recorded.store
    lanes = [lane.id for lane in store.lanes if lane.kind != "stream" and lane.pid == work.pid]
    events = store.events(lanes=lanes, categories=_NAMED, begin=begin, end=end, columns=("ts", "dur", "name"))
    if not len(events["ts"]):
        return ""
    covered = np.minimum(events["ts"] + events["dur"], end) - np.maximum(events["ts"], begin)
    most = covered >= 0.8 * covered.max()
    at = np.flatnonzero(most)[events["dur"][most].argmin()]
    return store.names[int(events["name"][at])][:80]


PLUGIN = Rule(
    title="Long gap on a device",
    question="where",
    definition="Longest stretch between two pieces of work of one device within the steps, or, without steps, within "
    "the recording.",
    unit="seconds",
    watch=0.5,
    bad=2.0,
    source="the rule gpu-starv of nsys (500 ms)",
    needs=("device_trace",),
    fires="{device} was idle for {value} without a break; meanwhile: {meanwhile}.",
    clear="The longest gap of a device is {value}.",
    advice="Move that work off the step, or mark it, so that the next recording names its parts.",
    evaluate=_evaluate,
)
