"""The engine decodes few sequences at once for much of its time: what is left of a batch whose others are done."""

import numpy as np

from profiling.analysis.rollout import counts_of
from profiling.diagnosis.evaluators import whole_window
from profiling.diagnosis.finding import InsufficientData, KnobChange, Observation, Rule
from profiling.evidence import Evidence
from profiling.trace.category import Category

_FEW = 0.25  # of the most sequences that were decoded at once
_SOME = 8  # sequences: of fewer, none is a tail


def _evaluate(evidence: Evidence) -> Observation | InsufficientData:
    worst: Observation | None = None
    for recorded in evidence.recorded:
        store = recorded.store
        rows = recorded.events(categories=[Category.BATCH], columns=("ts", "dur", "name"))
        if not len(rows["ts"]):
            continue
        sizes = np.array([_sequences(name) for name in store.names])[rows["name"]]
        has_size = sizes > 0
        if not has_size.any() or not rows["dur"][has_size].sum():
            continue
        size, duration = sizes[has_size], rows["dur"][has_size]
        few = size < _FEW * size.max()
        words = {
            "most": int(size.max()),
            "mean": f"{np.average(size, weights=duration):.1f}",
            "passes": int(has_size.sum()),
        }
        seen = Observation(
            value=float(duration[few].sum() / duration.sum()),
            begin=int(rows["ts"][has_size].min()),
            end=int((rows["ts"] + rows["dur"])[has_size].max()),
            words=words,
            is_firing=None if size.max() >= _SOME else False,
            role=recorded.role,
            rank=recorded.rank,
        )
        if worst is None or seen.value > worst.value:
            worst = seen
    return worst or _from_readings(evidence)


def _from_readings(evidence: Evidence) -> Observation | InsufficientData:
    """Look at what engines told of themselves, where no file names their batches."""
    shares = [
        (float(np.median(evidence.in_steps(empty))), empty)
        for empty in evidence.all_readings("nearly_empty_percent")
        if len(evidence.in_steps(empty))
    ]
    if not shares:
        return InsufficientData(
            what="readings", text="No engine reported how full its batches are; vLLM reports it with every rollout."
        )
    value, worst = max(shares, key=lambda pair: pair[0])
    most = evidence.reading("running_requests", role=worst.role, rank=worst.rank)
    mean = evidence.reading("running_requests_mean", role=worst.role, rank=worst.rank)
    peak = float(np.median(evidence.in_steps(most))) if most is not None else float("nan")
    usual = float(np.median(evidence.in_steps(mean))) if mean is not None else float("nan")
    begin, end = whole_window(worst, evidence)
    return Observation(
        value=value / 100,
        begin=begin,
        end=end,
        words={"most": f"{peak:.0f}", "mean": f"{usual:.1f}"},
        is_firing=None if peak >= _SOME else False,
        role=worst.role,
        rank=worst.rank,
    )


def _sequences(name: str) -> int:
    """Return how many sequences a pass of vLLM's named range works on; 0 for another range."""
    context, _tokens, generation, _more = counts_of(name) or (0, 0, 0, 0)
    return context + generation


PLUGIN = Rule(
    title="Engine runs nearly empty",
    question="where",
    definition="Fraction of the time in an engine's passes in which less than a quarter of its most sequences "
    "is in the batch.",
    unit="share",
    watch=0.30,
    bad=0.60,
    source="ours",
    needs=("readings", "trace"),
    is_live=True,
    fires="For {value} of its time the engine works on less than a quarter of its most sequences ({most}; "
    "mean {mean}).",
    clear="The engine works on {mean} sequences at once, of {most} at most; nearly empty for {value} of its time.",
    advice="Send it more prompts at once, cut or carry over the longest responses, or generate during the update.",
    changes=(
        KnobChange("rollout.prompts_per_step", "raise"),
        KnobChange("async.partial_rollout", "on"),
        KnobChange("async.mode", "choose"),
        KnobChange("rollout.max_new_tokens", "lower"),
    ),
    evaluate=_evaluate,
)
