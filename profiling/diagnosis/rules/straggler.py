"""One rank is slower than the others, and all wait for it."""

from math import comb

import numpy as np

from profiling.diagnosis.finding import InsufficientData, KnobChange, Observation, Rule
from profiling.evidence import Evidence
from profiling.phases import BY_FIRST_RANK, WAITING

_LEAST = 0.05  # of the step: below, nobody waits long
_CHANCE = 0.01  # how likely equal ranks may look like this one


def _evaluate(evidence: Evidence) -> Observation | InsufficientData:
    if not evidence.has_steps:
        return InsufficientData(what="phases")
    worst: tuple[tuple[bool, bool, float], Observation] | None = None
    for role, phase, name in _several(evidence):
        seconds_by_rank = evidence.by_rank(role, phase, name)
        if seconds_by_rank is None:
            continue
        ranks, seconds = seconds_by_rank
        spread = float(np.median((seconds.max(axis=0) - seconds.min(axis=0)) / seconds.max(axis=0)))
        slowest = seconds.argmax(axis=0)
        often = np.bincount(slowest, minlength=len(ranks))
        share = float(often.max() / seconds.shape[1])
        weight = float(np.median(seconds.max(axis=0)) / np.median(evidence.step_seconds))
        rank = int(ranks[often.argmax()])
        words = {
            "role": role,
            "rank": rank,
            "phase": f"{phase}, {name}" if name else phase,
            "often": f"{100 * share:.0f} %",
            "weight": f"{100 * weight:.0f} %",
        }
        is_chance = _tail(int(often.max()), seconds.shape[1], 1 / len(ranks)) > _CHANCE
        is_large = weight >= _LEAST
        is_firing = spread > PLUGIN.watch and not is_chance and is_large
        begin, end = evidence.window
        seen = Observation(value=spread, begin=begin, end=end, words=words, is_firing=is_firing, role=role, rank=rank)
        order = (is_firing, is_large, spread)  # what takes no time worth mentioning tells nothing
        if worst is None or order > worst[0]:
            worst = order, seen
    if worst is None:
        return InsufficientData(
            what="phases", text="No role has two ranks with phases of their own; there is nothing to compare."
        )
    return worst[1]


def _tail(count: int, of: int, chance: float) -> float:
    """Return how likely `count` or more of so many steps fall on one rank by chance (binomial distribution)."""
    return sum(comb(of, k) * chance**k * (1 - chance) ** (of - k) for k in range(count, of + 1))


def _several(evidence: Evidence) -> list[tuple[str, str, str]]:
    """Return role, phase and detail of everything that more than one rank does, the driver's own view apart.

    Details tell who is late: a phase that ends in a collective is as long on every rank, and only what comes before it
    differs. What holds collectives itself (a backward pass, an optimizer's step) is long on those who wait, so it is no
    sign; nor is a phase in which the first rank sends or writes for all.
    """
    spans = evidence.spans
    rows = (spans.role != "driver") & ~np.isin(spans.name, list(WAITING)) & ~np.isin(spans.phase, list(BY_FIRST_RANK))
    chosen = (spans.role[rows].tolist(), spans.phase[rows].tolist(), spans.name[rows].tolist())
    return sorted(set(zip(*chosen, strict=True)))


PLUGIN = Rule(
    title="Straggling rank",
    question="where",
    definition="Median over steps of (slowest - fastest rank) / slowest, in the phase of a role where it is largest.",
    unit="share",
    watch=0.05,
    bad=0.10,
    source="msprof-analyze's limit for slow ranks (5 %); that it is always the same rank must not be chance (1 %)",
    needs=("phases",),
    is_live=True,
    fires="Rank {rank} of {role} is the slowest in {phase} in {often} of the steps: the ranks lie {value} apart.",
    clear="Ranks of {role} lie {value} apart in {phase}, and no rank is the slowest throughout.",
    advice="Look at that rank's node, clocks and other processes; share out sequences by tokens, not by number.",
    changes=(
        KnobChange("train.dynamic_batch", "on"),
        KnobChange("train.max_tokens_per_gpu", "raise"),
        KnobChange("train.packing", "on"),
    ),
    evaluate=_evaluate,
)
