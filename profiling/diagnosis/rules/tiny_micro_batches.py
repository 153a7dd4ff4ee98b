"""The update is cut into many small pieces, each of which pays the same fixed cost."""

import numpy as np

from profiling.diagnosis.finding import InsufficientData, KnobChange, Observation, Rule
from profiling.evidence import Evidence

_MANY = 8  # pieces of an update below which there is nothing to join
_SHORT_SECONDS = 0.1


def _evaluate(evidence: Evidence) -> Observation | InsufficientData:
    passes = evidence.details("update", "forward")
    if not evidence.has_steps:
        return InsufficientData(what="phases")
    if not len(passes):
        text = "The trainer reported no forward passes inside the update: switch marks of details on (profile.marks)."
        return InsufficientData(what="phases", text=text)
    workers = {(role, int(rank)) for role, rank in zip(passes.role, passes.rank, strict=True)}
    steps = len(np.unique(passes.step))
    pieces = len(passes) / max(1, len(workers) * steps)
    seconds = float(np.median(passes.duration)) / 1e9
    share = evidence.share("update") or 0.0
    begin, end = evidence.window
    words = {"milliseconds": f"{1e3 * seconds:.3g}", "share": f"{100 * share:.0f} %"}
    is_firing = pieces > PLUGIN.watch and seconds < _SHORT_SECONDS and share > 0.1
    return Observation(value=pieces, begin=begin, end=end, words=words, is_firing=is_firing, role="policy", rank=0)


PLUGIN = Rule(
    title="Tiny micro-batches",
    question="why",
    definition="Forward passes of the update of one rank and step; it fires where each takes less than 100 ms.",
    unit="count",
    watch=_MANY,
    bad=4 * _MANY,
    source="ours, after the advice of OpenRLHF's and verl's guides to raise the micro-batch until memory is used",
    needs=("phases",),
    is_live=True,
    fires="The update, {share} of the step, is {value} forward passes of {milliseconds} ms each.",
    clear="The update is {value} forward passes of {milliseconds} ms each.",
    advice="Raise the micro-batch, or let it be filled by tokens: fewer passes, the same gradient.",
    changes=(
        KnobChange("train.micro_batch_size", "raise"),
        KnobChange("train.dynamic_batch", "on"),
        KnobChange("train.max_tokens_per_gpu", "raise"),
        KnobChange("train.packing", "on"),
    ),
    evaluate=_evaluate,
)
