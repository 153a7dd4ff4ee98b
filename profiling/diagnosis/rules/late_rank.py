"""One rank comes late to every collective: the others' kernels wait in it, and its own is the shortest."""

import numpy as np

from profiling.analysis.communication import plain_name
from profiling.analysis.intervals import total
from profiling.diagnosis.device_work import DeviceWork, devices
from profiling.diagnosis.finding import InsufficientData, KnobChange, Observation, Rule
from profiling.evidence import Evidence
from profiling.trace.category import Category

_AS_OFTEN = 1.05  # recordings of ranks begin and end a call apart
_ALONE = "It takes the same collectives on two devices or more in one capture."


def _evaluate(evidence: Evidence) -> Observation | InsufficientData:
    groups = [group for group in _alike(evidence) if len(group) > 1]
    if not groups:
        return InsufficientData(what="collectives", text=_ALONE)
    return max(map(_spread, groups), key=lambda observation: observation.value)


def _alike(evidence: Evidence) -> list[list[tuple[DeviceWork, int]]]:
    """Return devices that take part in the same collectives, by names and (to 5 %) number, with their time in them.

    Stages of a pipeline, engines and trainers talk of other things: who talks less than the other is not late.
    """
    by_names: dict[object, list[tuple[int, DeviceWork, int]]] = {}
    for work in devices(evidence):
        rows = work.category == Category.COMMUNICATION
        names = work.recorded.store.names
        called = frozenset(plain_name(names[number]) for number in np.unique(work.name[rows]).tolist())
        if called and (length := total(work.moments(rows))):
            by_names.setdefault((work.recorded.role, called), []).append((int(rows.sum()), work, length))
    groups: list[list[tuple[DeviceWork, int]]] = []
    for talking in by_names.values():
        least = 0.0
        for calls, work, length in sorted(talking, key=lambda one: one[0]):
            if calls > _AS_OFTEN * least:
                least = calls
                groups.append([])
            groups[-1].append((work, length))
    return groups


def _spread(talking: list[tuple[DeviceWork, int]]) -> Observation:
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
    definition="Longest less shortest time that devices with the same collectives spend in them, divided by the "
    "recorded time: what they wait for the last one.",
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
