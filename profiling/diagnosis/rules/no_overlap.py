"""Communication and computation take turns instead of running side by side."""

from collections.abc import Iterator

from profiling.analysis.intervals import difference, total
from profiling.diagnosis.device_work import devices
from profiling.diagnosis.evaluators import evaluate_worst
from profiling.diagnosis.finding import InsufficientData, KnobChange, Observation, Rule
from profiling.evidence import Evidence
from profiling.trace.category import Category

_EXPOSED = 0.10


def _observations(evidence: Evidence) -> Iterator[Observation]:
    for work in devices(evidence):
        talk, compute = work.of(Category.COMMUNICATION), work.of(Category.KERNEL)
        if not total(talk) or not work.kernels.any():  # of collectives alone it is not known what hid them
            continue
        exposed = total(difference(talk, compute))
        overlap = 1 - exposed / total(talk)
        theirs = set(work.stream[work.category == Category.COMMUNICATION].tolist())
        same = bool(theirs & set(work.stream[work.kernels].tolist()))
        is_firing = overlap < PLUGIN.watch and exposed / work.window > _EXPOSED
        yield work.observation(
            overlap, is_firing=is_firing, streams="the same stream" if same else "streams of their own"
        )


PLUGIN = Rule(
    title="No overlap",
    question="why",
    definition="Fraction of the time of collectives during which the device computes too; it fires where more "
    "than 10 % of the time is exposed.",
    unit="share",
    watch=0.50,
    bad=0.20,
    is_low_bad=True,
    source="Holistic Trace Analysis, its ratio of overlap; the threshold is ours",
    needs=("collectives",),
    fires="{value} of the collectives of {device} overlap with kernels; they run on {streams}.",
    clear="{value} of the collectives of {device} overlap with kernels.",
    advice="Switch overlap on, prefetch the next layer, and give collectives a stream of their own.",
    changes=(
        KnobChange("parallel.overlap_comm", "on"),
        KnobChange("parallel.forward_prefetch", "on"),
        KnobChange("parallel.defer_gradient_sync", "on"),
    ),
    evaluate=evaluate_worst(_observations, missing=InsufficientData(what="collectives"), is_low_bad=True),
)
