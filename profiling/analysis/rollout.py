"""Generation: how full the engine's batches are over time, and how long its last answers keep all others waiting."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from profiling.analysis.intervals import Intervals, Ints
from profiling.analysis.work import WorkerEvents
from profiling.trace.category import Category

DONE = 0.9
"""The tail begins when this share of the requests is done."""

_COUNTS = re.compile(r"context_(\d+)\((?:sq)?(\d+)[^()]*\).*?generation_(\d+)\((?:sq)?(\d+)[^()]*\)")
_MOST_POINTS = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Batches:
    """Passes of the engine, by start; columns [n]. `ts` in Unix ns, `dur` in ns.

    context: requests whose prompt is read, generation: requests that get a token; and the tokens of both.
    """

    ts: Ints
    dur: Ints
    context: Ints
    context_tokens: Ints
    generation: Ints
    generation_tokens: Ints

    def __len__(self) -> int:
        return len(self.ts)

    @property
    def requests(self) -> Ints:
        """Requests in each pass [n]."""
        return self.context + self.generation


@dataclass(frozen=True, slots=True, kw_only=True)
class Tail:
    """The long tail of one rollout. Times in Unix ns.

    It begins when the last pass with more than a tenth of the most requests ends: then nine in ten
    are done, where all had begun together; else it is a lower bound of what is left.
    """

    begin: int
    tail: int
    end: int

    @property
    def share(self) -> float:
        """The tail's share of the rollout."""
        return (self.end - self.tail) / (self.end - self.begin) if self.end > self.begin else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutSummary:
    """Generation within a window. `points` are (Unix ns, requests in the pass that begins then), at most 400."""

    passes: int
    most_requests: int
    mean_requests: float
    tokens: int
    seconds: float
    tails: tuple[Tail, ...]
    points: tuple[tuple[int, int], ...]


def batches(work: WorkerEvents, begin: int, end: int) -> Batches:
    """Return the passes that begin in [begin, end) and whose names tell what was in them."""
    events = work.host.of(Category.BATCH)
    events = events.take((events.ts >= begin) & (events.ts < end))
    counts = {number: counts_of(work.name(number)) for number in np.unique(events.name).tolist()}
    table = np.array([counts[number] or (-1, 0, 0, 0) for number in events.name.tolist()], np.int64).reshape(-1, 4)
    counted = np.flatnonzero(table[:, 0] >= 0)
    rows = counted[np.argsort(events.ts[counted], kind="stable")]
    return Batches(
        ts=events.ts[rows],
        dur=events.dur[rows],
        context=table[rows, 0],
        context_tokens=table[rows, 1],
        generation=table[rows, 2],
        generation_tokens=table[rows, 3],
    )


def engine_tokens(work: WorkerEvents, within: Intervals) -> int:
    """Return the tokens that passes of an engine generated which begin within some moments; 0 if none are told."""
    if not len(within):
        return 0
    engine_batches = batches(work, int(within.begin[0]), int(within.end[-1]))
    return int(engine_batches.generation_tokens[within.contains(engine_batches.ts)].sum())


def counts_of(name: str) -> tuple[int, int, int, int] | None:
    """Return (context requests, their tokens, generation requests, their tokens) of vLLM's name of a pass.

    None for another name. "execute_context_1(37)_generation_15(15)" is (1, 37, 15, 15); vLLM writes "sq37sk40..." for
    the tokens where it tells of attention's sizes too.
    """
    match = _COUNTS.search(name)
    if not match or any(len(group) > 12 for group in match.groups()):
        return None
    context, context_tokens, generation, generation_tokens = (int(group) for group in match.groups())
    return context, context_tokens, generation, generation_tokens


def tail_of_batches(own: Batches) -> Tail | None:
    """Return the tail of one rollout's passes; None without any."""
    if not len(own):
        return None
    ends = own.ts + own.dur
    full = np.flatnonzero(own.requests > round((1 - DONE) * int(own.requests.max()), 6))
    return Tail(begin=int(own.ts[0]), tail=int(ends[full[-1]]), end=int(ends.max()))


def rollout(work: WorkerEvents, rollouts: Sequence[tuple[int, int]], begin: int, end: int) -> RolloutSummary | None:
    """Return how generation went in [begin, end); `rollouts` are begin and end of each phase of it, () if not known.

    None where the trace has no passes of an engine.
    """
    engine_batches = batches(work, begin, end)
    if not len(engine_batches):
        return None
    parts = rollouts or [(begin, end)]
    tails = [tail_of_batches(_between(engine_batches, *part)) for part in parts]
    weights = np.maximum(engine_batches.dur, 1)
    chosen = np.unique(np.linspace(0, len(engine_batches) - 1, min(len(engine_batches), _MOST_POINTS)).astype(np.int64))
    return RolloutSummary(
        passes=len(engine_batches),
        most_requests=int(engine_batches.requests.max()),
        mean_requests=float((engine_batches.requests * weights).sum() / weights.sum()),
        tokens=int(engine_batches.generation_tokens.sum()),
        seconds=float(engine_batches.dur.sum() / 1e9),
        tails=tuple(tail for tail in tails if tail is not None),
        points=tuple(zip(engine_batches.ts[chosen].tolist(), engine_batches.requests[chosen].tolist(), strict=True)),
    )


def _between(engine_batches: Batches, begin: int, end: int) -> Batches:
    rows: npt.NDArray[np.bool_] = (engine_batches.ts >= begin) & (engine_batches.ts < end)
    return Batches(**{name: getattr(engine_batches, name)[rows] for name in engine_batches.__slots__})
