"""Devices talk while none of them computes."""

from collections.abc import Iterator

from profiling.analysis.intervals import difference, total
from profiling.diagnosis.device_work import devices
from profiling.diagnosis.evaluators import evaluate_worst
from profiling.diagnosis.finding import InsufficientData, KnobChange, Observation, Rule
from profiling.evidence import Evidence
from profiling.trace.category import Category


def _observations(evidence: Evidence) -> Iterator[Observation]:
    for work in devices(evidence):
        talk = work.of(Category.COMMUNICATION)
        if not total(talk) or not work.kernels.any():  # of collectives alone it is not known what hid them
            continue
        exposed = total(difference(talk, work.of(Category.KERNEL))) / work.window
        yield work.observation(exposed, all=f"{100 * total(talk) / work.window:.1f} %")


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
    changes=(
        KnobChange("parallel.overlap_comm", "on"),
        KnobChange("memory.zero_stage", "choose"),
        KnobChange("train.micro_batch_size", "raise"),
        KnobChange("memory.reshard_after_forward", "choose"),
    ),
    evaluate=evaluate_worst(_observations, missing=InsufficientData(what="collectives")),
)
