"""The device has nothing to do for much of the time."""

from profiling.diagnosis.device_work import devices
from profiling.diagnosis.finding import InsufficientData, Observation, Rule
from profiling.evidence import Evidence


def _evaluate(evidence: Evidence) -> Observation | InsufficientData:
    idlest = min(devices(evidence), key=lambda work: work.busy_share, default=None)
    if idlest is None:
        return InsufficientData(what="device_trace")
    return Observation(
        value=idlest.busy_share,
        begin=idlest.begin,
        end=idlest.end,
        words=idlest.words,
        role=idlest.recorded.role,
        rank=idlest.recorded.rank,
    )


PLUGIN = Rule(
    title="Device idle",
    question="where",
    definition="Union of all kernels and copies of a device divided by the recorded time, of the idlest device.",
    unit="share",
    watch=0.80,
    bad=0.50,
    is_low_bad=True,
    source="the rule gpu-low-util of nsys (50 %); 80 % is ours",
    needs=("device_trace",),
    fires="{device} is busy for {value} of the recorded time.",
    clear="The idlest is {device}: busy for {value} of the recorded time.",
    advice="Look at the rules below for the cause: launches, synchronisation, data, communication or another role.",
    evaluate=_evaluate,
)
