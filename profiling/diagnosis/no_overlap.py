"""Communication and computation take turns instead of running side by side."""

from profiling.analysis.intervals import difference, total
from profiling.device_work import devices
from profiling.evidence import Evidence
from profiling.finding import Missing, Rule, Seen, Turn
from profiling.trace.category import Category

_EXPOSED = 0.10


def _judge(evidence: Evidence) -> Seen | Missing:
    worst: Seen | None = None
    for work in devices(evidence):
        talk, compute = work.of(Category.COMMUNICATION), work.of(Category.KERNEL)
        if not total(talk):
            continue
        exposed = total(difference(talk, compute))
        overlap = 1 - exposed / total(talk)
        theirs = set(work.stream[work.category == Category.COMMUNICATION].tolist())
        same = bool(theirs & set(work.stream[work.kernels].tolist()))
        words = {**work.words, "streams": "the same stream" if same else "streams of their own"}
        seen = Seen(
            value=overlap,
            begin=work.begin,
            end=work.end,
            words=words,
            is_firing=overlap < PLUGIN.watch and exposed / work.window > _EXPOSED,
            role=work.recorded.role,
            rank=work.recorded.rank,
        )
        if worst is None or (bool(seen.is_firing), -seen.value) > (bool(worst.is_firing), -worst.value):
            worst = seen
    return worst or Missing(what="collectives")


PLUGIN = Rule(
    title="No overlap",
    question="why",
    definition="Share of the time of collectives during which the device computes too; it fires where more than "
    "10 % of the time is exposed.",
    unit="share",
    watch=0.50,
    bad=0.20,
    is_low_bad=True,
    source="Holistic Trace Analysis, its ratio of overlap; the threshold is ours",
    needs=("collectives",),
    fires="{value} of the collectives of {device} overlap with kernels; they run on {streams}.",
    clear="{value} of the collectives of {device} overlap with kernels.",
    advice="Switch overlap on, prefetch the next layer, and give collectives a stream of their own.",
    turns=(
        Turn("parallel.overlap_comm", "on"),
        Turn("parallel.forward_prefetch", "on"),
        Turn("parallel.defer_gradient_sync", "on"),
    ),
    judge=_judge,
)
