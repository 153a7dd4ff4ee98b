"""What a layout lacks: bytes on a device or a node, or KV cache for one sequence; as a sentence and as a fraction."""

from typing import NamedTuple

from jobs.catalog.sentence import Sentence
from jobs.planner.estimate import Fit
from jobs.planner.job import Job
from jobs.planner.result import EngineCache, phase_word, pool_word
from jobs.planner.validity import Misfit, least_bytes


class Shortfall(NamedTuple):
    """Why a layout is no good, and the share of what there is that it needs, 0 where that cannot be said."""

    misfit: Misfit
    share: float


def shortfall_of(fit: Fit) -> Shortfall | None:
    """Return what a job lacks, and the share of what there is that it needs; None if it has all that it needs."""
    job = fit.job
    if short := no_cache(fit.rollout):
        return short
    if job.fleet.host_bytes and fit.host_bytes > job.fleet.host_bytes:
        message = Sentence(
            "A node needs {needed} of {there} host memory.",
            needed=_gib(fit.host_bytes),
            there=_gib(job.fleet.host_bytes),
        )
        return Shortfall(Misfit(reason="host", message=message), fit.host_bytes / job.fleet.host_bytes)
    pool, phase = fit.pool, fit.phase
    if fit.verdict != "no":  # tight may be above the limit, by less than is known: that is not one that fits
        pool = max(fit.pools, key=lambda each: each.share)
        phase = pool.binding
    if fit.verdict == "no" or pool.share > 1:
        why: str = Sentence(
            "{pool} needs {needed} of {limit} during {phase}.",
            pool=pool_word(pool.name),
            needed=_gib(phase.memory.total),
            limit=_gib(pool.limit),
            phase=phase_word(phase.phase),
        )
        if phase.memory.total <= pool.limit and fit.problems:
            why = fit.problems[0]  # there is free memory, and yet the engine does not start
        return Shortfall(Misfit(reason="memory", message=why), pool.share)
    return None


def no_cache(rollout: EngineCache | None) -> Shortfall | None:
    """Return what an engine lacks that cannot hold one whole sequence, whatever is trained beside it."""
    if rollout is None or rollout.full_sequences >= 1:
        return None
    message = Sentence("The cache of an engine holds {kv_tokens:,} tokens.", kv_tokens=rollout.kv_tokens)
    return Shortfall(Misfit(reason="engine_memory", message=message), 2.0 - rollout.full_sequences)


def too_large(job: Job) -> Shortfall | None:
    """Return a shortfall where weights and gradients alone exceed a device."""
    least, limit = least_bytes(job.policy), job.fleet.accelerator.usable_bytes
    if least <= limit:
        return None
    message = Sentence(
        "Weights and gradients alone take {least} of {limit}.", least=_gib(round(least)), limit=_gib(limit)
    )
    return Shortfall(Misfit(reason="memory", message=message), least / limit)


def _gib(size: int) -> str:
    return f"{size / (1 << 30):.1f} GiB"
