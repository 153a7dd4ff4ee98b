"""A step took far longer than the others, and which phase and rank made it so."""

import numpy as np

from profiling.diagnosis.finding import InsufficientData, Observation, Rule
from profiling.evidence import LEAST_STEPS, Evidence
from profiling.phases import STEP_PHASES, WAITING


def _evaluate(evidence: Evidence) -> Observation | InsufficientData:
    free = np.flatnonzero(~evidence.is_recorded)  # a profiler makes its steps long
    if len(free) < LEAST_STEPS:
        return InsufficientData(what="phases")
    seconds = evidence.step_seconds[free]
    worst = int(free[seconds.argmax()])
    step = evidence.steps[worst]
    phase, role, rank = _cause(evidence, worst)
    cause = f"{phase} on {role} {rank}" if phase else "no recorded phase"
    words = {"step": step.number, "seconds": f"{step.seconds:.3g}", "cause": cause}
    ratio = float(seconds.max() / np.median(seconds))
    return Observation(value=ratio, begin=step.begin, end=step.end, words=words, role=role, rank=rank)


def _cause(evidence: Evidence, worst: int) -> tuple[str, str, int]:
    """Return the phase that exceeds its median most in that step, and the role and rank that was longest in it.

    The phase is "" where none explains half of what the step took too long.
    """
    excess: dict[str, float] = {}
    for phase in STEP_PHASES:
        seconds = evidence.phase_seconds(phase)
        if seconds is not None and np.isfinite(seconds[worst]):
            excess[phase] = float(seconds[worst] - np.nanmedian(seconds))
    phase = max(excess, key=lambda key: excess[key], default="")
    over = evidence.steps[worst].seconds - float(np.median(evidence.step_seconds))
    if not phase or excess[phase] < 0.5 * over:
        return "", "driver", 0
    spans = evidence.spans
    number = evidence.steps[worst].number
    worker_spans = spans.take((spans.phase == phase) & (spans.role != "driver") & ~np.isin(spans.name, list(WAITING)))
    excess_of_worker: dict[tuple[bool, str, int], float] = {}
    for key in set(
        zip((worker_spans.depth > 0).tolist(), worker_spans.role.tolist(), worker_spans.rank.tolist(), strict=True)
    ):
        own = worker_spans.take(
            ((worker_spans.depth > 0) == key[0]) & (worker_spans.role == key[1]) & (worker_spans.rank == key[2])
        )
        by_step = {int(step): own.duration[own.step == step].sum() / 1e9 for step in np.unique(own.step)}
        excess_of_worker[key] = by_step.get(number, 0.0) - float(np.median(list(by_step.values())))
    if not excess_of_worker:
        return phase, "driver", 0
    # A detail tells who was late; where none is told, or none exceeds, whoever took longest in the phase is named.
    _inside, role, rank = max(
        excess_of_worker,
        key=lambda key: (key[0] and excess_of_worker[key] > 0.5 * excess[phase], excess_of_worker[key]),
    )
    return phase, role, int(rank)


PLUGIN = Rule(
    title="Outlying step",
    question="where",
    definition="Longest of the newest steps divided by their median, without steps that a profiler recorded.",
    unit="ratio",
    watch=2.0,
    bad=4.0,
    source="ours",
    needs=("phases",),
    is_live=True,
    fires="Step {step} took {seconds} s, {value} times the median. Longer than usual in it: {cause}.",
    clear="The longest of the newest steps is {value} times the median.",
    advice="Look at that moment: the logs, the node's readings, a checkpoint or evaluation of another run.",
    evaluate=_evaluate,
)
