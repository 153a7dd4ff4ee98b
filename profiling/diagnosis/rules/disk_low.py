"""The disk of the run directory is nearly full: the next checkpoint or capture fails."""

from profiling.diagnosis.finding import InsufficientData, KnobChange, Observation, Rule
from profiling.evidence import Evidence


def _evaluate(evidence: Evidence) -> Observation | InsufficientData:
    best: Observation | None = None
    for free in evidence.all_readings("disk_free_bytes"):
        total = evidence.reading("disk_total_bytes", role=free.role, rank=free.rank)
        if total is None or not total.finite[-1] > 0:
            continue
        share = float(free.finite[-1] / total.finite[-1])
        words = {"node": free.rank, "free": f"{free.finite[-1] / 2**30:.1f} GiB"}
        t = int(free.time[-1])
        seen = Observation(value=share, begin=t, end=t, words=words, role=free.role, rank=free.rank)
        if best is None or seen.value < best.value:
            best = seen
    return best or InsufficientData(what="readings")


PLUGIN = Rule(
    title="Disk nearly full",
    question="why",
    definition="Free space of the disk of the run directory divided by its size, at the newest reading.",
    unit="share",
    watch=0.05,
    bad=0.02,
    is_low_bad=True,
    source="ours",
    needs=("readings",),
    is_live=True,
    fires="Node {node} has {free} free, {value} of its disk.",
    clear="Node {node} has {free} free, {value} of its disk.",
    advice="Keep fewer checkpoints, or put the run directory on a larger disk.",
    changes=(KnobChange("checkpoint.keep", "lower"), KnobChange("checkpoint.max_disk", "lower")),
    evaluate=_evaluate,
)
