"""Requests wait although the engine has free KV cache: its limit of sequences is too low."""

from collections.abc import Iterator

import numpy as np

from profiling.diagnosis.evaluators import evaluate_worst, whole_window
from profiling.diagnosis.finding import InsufficientData, KnobChange, Observation, Rule
from profiling.evidence import Evidence

_ROOM = 60.0  # per cent of the KV cache


def _observations(evidence: Evidence) -> Iterator[Observation]:
    for waiting in evidence.all_readings("waiting_requests"):
        running = evidence.reading("running_requests", role=waiting.role, rank=waiting.rank)
        used = evidence.reading("kv_cache_percent", role=waiting.role, rank=waiting.rank)
        if running is None or used is None:
            continue
        wait, run, full = (float(np.median(evidence.in_steps(one))) for one in (waiting, running, used))
        begin, end = whole_window(waiting, evidence)
        words = {"role": waiting.role, "rank": waiting.rank, "running": f"{run:.0f}", "used": f"{full:.0f} %"}
        yield Observation(
            value=wait,
            begin=begin,
            end=end,
            words=words,
            is_firing=wait > max(PLUGIN.watch, 0.1 * run) and full < _ROOM,
            role=waiting.role,
            rank=waiting.rank,
        )


PLUGIN = Rule(
    title="Engine takes too few at once",
    question="why",
    definition="Median over steps of the most requests that waited at once; it fires below 60 % of the KV cache.",
    unit="count",
    watch=1,
    bad=64,
    source="vLLM's metric definitions; the threshold is ours",
    needs=("readings",),
    is_live=True,
    fires="{value} requests wait at {role} {rank} while {running} run and only {used} of its KV cache is used.",
    clear="{value} requests wait at {role} {rank} while {running} run; {used} of its KV cache is used.",
    advice="Raise the number of sequences and of tokens that the engine takes in one batch.",
    changes=(KnobChange("rollout.max_num_seqs", "raise"), KnobChange("rollout.max_batched_tokens", "raise")),
    evaluate=evaluate_worst(_observations, missing=InsufficientData(what="readings")),
)
