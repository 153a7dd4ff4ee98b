"""Devices talk while none of them computes."""

from collections.abc import Iterator

from profiling.analysis.intervals import difference, total
from profiling.device_work import devices
from profiling.evidence import Evidence
from profiling.finding import Missing, Rule, Seen, Turn
from profiling.judging import judge_worst
from profiling.trace.category import Category


def _look(evidence: Evidence) -> Iterator[Seen]:
    for work in devices(evidence):
        talk = work.of(Category.COMMUNICATION)
        if not total(talk):
            continue
        exposed = total(difference(talk, work.of(Category.KERNEL))) / work.window
        yield work.seen(exposed, all=f"{100 * total(talk) / work.window:.1f} %")


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
    judge=judge_worst(_look, missing=Missing(what="collectives")),
)
