"""Devices talk while none of them computes."""

from profiling.analysis.intervals import difference, total
from profiling.device_work import devices
from profiling.evidence import Evidence
from profiling.finding import Missing, Rule, Seen, Turn
from profiling.trace.category import Category


def _judge(evidence: Evidence) -> Seen | Missing:
    worst: Seen | None = None
    for work in devices(evidence):
        talk = work.of(Category.COMMUNICATION)
        if not total(talk):
            continue
        exposed = total(difference(talk, work.of(Category.KERNEL))) / work.window
        words = {**work.words, "all": f"{100 * total(talk) / work.window:.1f} %"}
        recorded = work.recorded
        seen = Seen(value=exposed, begin=work.begin, end=work.end, words=words, role=recorded.role, rank=recorded.rank)
        if worst is None or seen.value > worst.value:
            worst = seen
    return worst or Missing(what="collectives")


PLUGIN = Rule(
    title="Exposed communication",
    question="where",
    definition="Time of collectives while the device runs no kernel that computes, divided by the recorded time.",
    unit="share",
    watch=0.10,
    bad=0.20,
    source="TensorBoard's torch profiler plugin (10 %); 20 % from lists of root causes for nsys",
    needs=("collectives",),
    fires="{device} does nothing but communicate for {value} of the time ({all} in all).",
    clear="{device} does nothing but communicate for {value} of the time.",
    advice="Overlap it, raise the bucket size or the micro-batch, choose another ZeRO stage, and check the links.",
    turns=(
        Turn("parallel.overlap_comm", "on"),
        Turn("memory.zero_stage", "choose"),
        Turn("train.micro_batch_size", "raise"),
        Turn("memory.reshard_after_forward", "choose"),
    ),
    judge=_judge,
)
