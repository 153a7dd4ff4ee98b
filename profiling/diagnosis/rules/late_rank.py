"""One rank comes late to every collective: the others' kernels wait in it, and its own is the shortest."""

import numpy as np

from profiling.analysis.intervals import total
from profiling.diagnosis.device_work import devices
from profiling.diagnosis.finding import InsufficientData, KnobChange, Observation, Rule
from profiling.evidence import Evidence
from profiling.trace.category import Category


def _evaluate(evidence: Evidence) -> Observation | InsufficientData:
    communication = [(work, total(work.of(Category.COMMUNICATION))) for work in devices(evidence)]
    talking = [(work, length) for work, length in communication if length]
    if len(talking) < 2:
        return InsufficientData(what="collectives", text="It takes collectives of two devices or more in one capture.")
    lengths = np.array([length for _work, length in talking])
    latest = talking[int(lengths.argmin())][0]
    window = max(work.window for work, _length in talking)
    words = {
        **latest.words,
        "least": f"{lengths.min() / 1e6:.1f} ms",
        "most": f"{lengths.max() / 1e6:.1f} ms",
        "count": len(talking),
    }
    return Observation(
        value=float((lengths.max() - lengths.min()) / window),
        begin=latest.begin,
        end=latest.end,
        words=words,
        role=latest.recorded.role,
        rank=latest.recorded.rank,
    )


PLUGIN = Rule(
    title="Late to collectives",
    question="why",
    definition="Longest less shortest time that devices spend in collectives, divided by the recorded time: what "
    "they wait for the last one.",
    unit="share",
    watch=0.05,
    bad=0.10,
    source="a collective's kernel lasts until the slowest rank has come; 5 % is msprof-analyze's limit for slow ranks",
    needs=("collectives",),
    fires="Others wait {value} of the time for {device}: it spends {least} in collectives, they up to {most}.",
    clear="The {count} devices spend {least} to {most} in collectives: nobody waits long.",
    advice="Look at that rank's node, clocks and batch; share out sequences by tokens.",
    changes=(KnobChange("train.dynamic_batch", "on"), KnobChange("train.packing", "on")),
    evaluate=_evaluate,
)
