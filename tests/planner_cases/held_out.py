"""How true the planner's seconds are of what nobody fitted: bias, coverage and width by class, each source left out.

    held_out(cases, constants) -> a Figure a class

A source never judges what it fitted. For each source the constants of FITTED are refitted on the cases for fitting of
the other sources, and the class's width is taken from the residuals of the others; then the source is judged. The refit
is one Gauss-Newton step on ln(predicted / measured), with a Huber weight for rows far off and every constant held by
what physics allows it, which is how the shipped values were chosen. It takes one derivative of each row by each
constant: seconds, not minutes. Only what the left-out source changed in that step is applied, so that rounding of the
shipped values plays no part. Where a class has one source, as weight syncs have, each row of it is left out in its
turn.

Width is high / low of an interval, the ratio that `measure.WIDEST` bounds too.
"""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from jobs.planner.constant import Constants
from jobs.planner.estimate import Estimator
from jobs.planner.time.training import band_of
from jobs.planner.time.weight_sync import transport_of
from tests.planner_cases.load import Case
from tests.planner_cases.measure import Reading, time_readings

BIAS = (0.9, 1.1)  # the median of predicted over measured
COVERAGE = 80.0  # percent inside
WIDTH = 1.8
LEAST = 5  # readings below which a class is shown, and judged by nothing
LEAST_SOURCES = 4  # below which what is left when one is left out says little: shown, and gated by nothing
Check = Literal["bias", "coverage", "width"]
_EVERY: tuple[Check, ...] = ("bias", "coverage", "width")
NARROW = (
    "training, dense",
    "training, experts",
    "training, adapters",
    "decode, dense",
    "decode, experts",
    "rollout",
    "scoring",
    "RL update",
    "RL step",
)
"""Classes whose width is gated. Bias and coverage of all are: an interval is honest first, and narrow where physics
lets it be (docs/develop/planner-cases.md)."""
ASSUMED = ", work assumed"
"""What is added to the class of an update or a scoring pass in a step whose lengths, micro-batches, layout or card its
source does not say: it reads the assumption, and not a speed."""
UNLIKE = ("weight sync, ipc", "weight sync, packed", "RL update" + ASSUMED, "scoring" + ASSUMED)
"""Classes whose readings count different things, so that coverage is shown and gated by nothing. On shared devices some
logs time the loop that hands over tensors, some what pauses and flushes the engines too; packed buffers are sent 2.4
times as fast by releases that pack while they send, which nothing in a configuration tells; and of assumed work nobody
knows how much it is. Neither constants nor widths are fitted to that work."""

FITTED: Mapping[str, float] = {
    "speed.products": 0.15,
    "speed.ridge": 0.5,
    "speed.products_fp8": 0.15,
    "speed.attention_softmax_rate": 0.25,
    "speed.attention_flash2_share": 0.15,
    "speed.moved_eager": 0.4,
    "speed.moved_fused": 0.4,
    "speed.moved_liger": 0.4,
    "speed.moved_compiled": 0.4,
    "speed.moved_megatron": 0.4,
    "speed.moved_experts": 0.5,
    "speed.moved_grouped": 0.5,
    "speed.moved_fused_experts": 0.5,
    "speed.layer_seconds": 0.5,
    "speed.hook_seconds": 0.5,
    "speed.layer_seconds_experts": 0.5,
    "speed.layer_seconds_grouped": 0.5,
    "speed.layer_seconds_flex": 0.5,
    "speed.layer_seconds_zero3": 0.5,
    "speed.adapter_passes": 0.4,
    "speed.adapter_launches": 0.4,
    "speed.dequantize_bytes": 0.4,
    "speed.ring_share": 0.25,
    "speed.scoring_share": 0.3,
    "speed.update_share": 0.3,
    "speed.update_share_megatron": 0.3,
    "speed.pass_seconds": 0.4,
    "speed.slot_seconds": 0.4,
    "network.node_share": 0.25,
    "network.exchange_share": 0.3,
    "network.flex_share": 0.3,
    "network.exchange_overlap": 0.4,
    "network.weights_overlap": 0.15,
    "decode.bandwidth": 0.1,
    "decode.compute": 0.2,
    "decode.compute_experts": 0.4,
    "decode.tile_rows": 0.2,
    "decode.layer_seconds": 0.3,
    "decode.expert_layer_seconds": 0.3,
    "decode.expert_exchange_seconds": 0.4,
    "decode.sequence_seconds": 0.4,
    "decode.eager_layer_seconds": 0.4,
    "decode.eager_expert_layer_seconds": 0.4,
    "decode.rollout_share": 0.15,
    "decode.mean_share": 0.3,
}
"""Constants that measured cases chose, and how far physics lets each be from its value: one sigma of its logarithm."""

_SAME: Mapping[str, str] = {
    **dict.fromkeys(("MC", "MD", "MN"), "MB"),
    **dict.fromkeys(("NB", "NV", "NW", "NJ"), "NR"),
    **dict.fromkeys(("NG", "NH", "NK"), "NF"),
    **{"MQ": "MP", "LH": "LG", "VY": "VA", "SK": "SR"},
}
"""Pages of one project, by release."""
_SPREAD = 0.2  # of ln(predicted / measured), about
_FAR = 0.3  # from which a row counts less
_SHRUNK = 5  # readings that the spread of all classes counts for in the width of one
_STEP = 0.03  # of a constant, for its derivatives


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One class: readings, sources, the median of predicted over measured, percent inside, the median of high / low;
    `residual`: the size that four of five residuals do not exceed, as a factor: what its band should be."""

    kind: str
    num: int
    sources: int
    bias: float
    coverage: float
    width: float
    residual: float

    @property
    def misses(self) -> tuple[Check, ...]:
        """What of the goals a class of LEAST readings and more misses."""
        if self.num < LEAST:
            return ()
        is_biased = not BIAS[0] <= self.bias <= BIAS[1]
        missed = {"bias": is_biased, "coverage": self.coverage < COVERAGE, "width": self.width > WIDTH}
        return tuple(check for check in _EVERY if missed[check])

    @property
    def fails(self) -> tuple[Check, ...]:
        """What of that is gated: width of classes that can be narrow, all else where sources are enough."""
        return tuple(
            check
            for check in self.misses
            if (self.kind in NARROW if check == "width" else self.sources >= LEAST_SOURCES)
            and not (check == "coverage" and self.kind in UNLIKE)
            and not (check == "bias" and self.kind.endswith(ASSUMED))
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Timed:
    """A reading of seconds: ln(predicted / measured), and how far its interval reaches to both sides, as logarithms.
    `band`: what made it as wide as it is, the constant of an update, that of a batch on an engine that serves alone, or
    else the class."""

    case: Case
    kind: str
    band: str
    source: str
    error: float
    below: float
    above: float


def class_of(reading: Reading) -> str:
    """Return the class of a reading of time, "" for any other."""
    job, what = reading.case.job, reading.quantity
    if what == "training speed":
        if job is not None and job.policy.method != "full":
            return "training, adapters"
        return "training, experts" if _has_experts(reading.case) else "training, dense"
    if what == "RL phase":
        if reading.what == "rollout":
            return "rollout"
        kind = "RL update" if reading.what == "update" else "scoring"
        return kind + (ASSUMED if reading.case.assumed else "")
    if what == "weight sync":
        return f"weight sync, {transport_of(job)}" if job else ""
    if what == "decode":
        return "decode, experts" if _has_experts(reading.case) else "decode, dense"
    return {"scoring": "scoring", "RL step": "RL step", "generation": "rollout"}.get(what, "")


def held_out(cases: Sequence[Case], constants: Constants) -> tuple[Figure, ...]:
    """Return a figure a class, as each source finds it that was left out."""
    estimator = Estimator(constants)
    rows = _timed(cases, constants, estimator)
    return _figures(_without_their_sources(cases, rows, constants, estimator))


def as_shipped(found: Iterable[Reading]) -> tuple[Figure, ...]:
    """Return a figure a class of readings with the constants as they are."""
    rows = [row for reading in found if (row := _row(reading)) is not None]
    return tuple(_figure(kind, each, [1.0] * len(each)) for kind, each in _by_kind(rows).items())


def _timed(cases: Iterable[Case], constants: Constants, estimator: Estimator) -> list[_Timed]:
    found = (reading for case in cases for reading in time_readings(case, constants, estimator))
    rows = [row for reading in found if (row := _row(reading)) is not None]
    alone = {kind for kind, each in _by_kind(rows).items() if len({row.source for row in each}) == 1}
    return [replace(row, source=row.case.row) if row.kind in alone else row for row in rows]


def _row(reading: Reading) -> _Timed | None:
    kind, case = class_of(reading), reading.case
    if not kind or reading.interval is None or isinstance(reading.truth, str):
        return None
    low, middle, high = reading.interval.low, reading.interval.middle, reading.interval.high
    error, below, above = math.log(middle / reading.truth), math.log(middle / low), math.log(high / middle)
    if reading.is_rate:  # seconds, whatever was asked
        error, below, above = -error, above, below
    return _Timed(
        case=case,
        kind=kind,
        band=_band(reading),
        source=_SAME.get(case.source, case.source),
        error=error,
        below=below,
        above=above,
    )


def _band(reading: Reading) -> str:
    """Return what decides how wide a reading's interval is: a name of the constant, or its class."""
    job = reading.case.job
    if reading.quantity == "training speed" and job is not None:
        return band_of(job.policy, job.fleet.accelerator)
    return "generation" if reading.quantity == "generation" else class_of(reading)


def _figures(rows: Sequence[_Timed]) -> tuple[Figure, ...]:
    """Return the figures with each row's width as the residuals of the other sources have it."""
    everything = _residual([row.error for row in rows if not row.kind.endswith(ASSUMED)])
    scales = {}
    for band in {row.band for row in rows}:
        each = [row for row in rows if row.band == band]
        whole = _shrunk([row.error for row in each], everything)
        for source in {row.source for row in each}:
            others = _shrunk([row.error for row in each if row.source != source], everything)
            scales[band, source] = others / whole
    return tuple(
        _figure(kind, each, [scales[row.band, row.source] for row in each]) for kind, each in _by_kind(rows).items()
    )


def _figure(kind: str, rows: Sequence[_Timed], scale: Sequence[float]) -> Figure:
    reach = [(row.below * factor, row.above * factor) for row, factor in zip(rows, scale, strict=True)]
    inside = [-high <= row.error <= low for row, (low, high) in zip(rows, reach, strict=True)]
    return Figure(
        kind=kind,
        num=len(rows),
        sources=len({row.source for row in rows}),
        bias=math.exp(statistics.median(row.error for row in rows)),
        coverage=100 * sum(inside) / len(rows),
        width=math.exp(statistics.median(low + high for low, high in reach)),
        residual=math.exp(_residual([row.error for row in rows])),
    )


def _residual(errors: Sequence[float]) -> float:
    """Return the size that four of five errors do not exceed."""
    ordered = sorted(map(abs, errors))
    return ordered[min(math.ceil(0.8 * len(ordered)), len(ordered)) - 1] if ordered else 0.0


def _shrunk(errors: Sequence[float], everything: float) -> float:
    """Return a class's residual, drawn to that of all where it has few readings."""
    return (len(errors) * _residual(errors) + _SHRUNK * everything) / (len(errors) + _SHRUNK)


def _without_their_sources(
    cases: Sequence[Case], rows: Sequence[_Timed], constants: Constants, estimator: Estimator
) -> list[_Timed]:
    """Return the rows with the errors that constants would give which were fitted without the row's source."""
    import numpy as np

    slopes = np.array([_slopes(cases, rows, constants, estimator, name) for name in FITTED]).T
    errors = np.array([row.error for row in rows])
    prior = np.array([spread**-2 for spread in FITTED.values()])
    weights = np.array([_weight(row, rows) for row in rows])

    def step(left_out: str) -> np.ndarray:
        used = np.array([_is_fitted(row) and row.source != left_out for row in rows]) * weights
        normal = slopes.T @ (used[:, None] * slopes) + np.diag(prior)
        return -np.linalg.solve(normal, slopes.T @ (used * errors))

    whole = step("")
    moved = {source: step(source) - whole for source in {row.source for row in rows}}
    shifts = [float(slope @ moved[row.source]) for row, slope in zip(rows, slopes, strict=True)]
    return [replace(row, error=row.error + shift) for row, shift in zip(rows, shifts, strict=True)]


def _is_fitted(row: _Timed) -> bool:
    return row.case.is_for_fitting and not row.kind.endswith(ASSUMED)


def _slopes(
    cases: Sequence[Case], rows: Sequence[_Timed], constants: Constants, estimator: Estimator, name: str
) -> list[float]:
    """Return d ln(seconds) / d ln(constant) of every row."""
    constant = constants.get(name)
    step = _STEP if constant.value * (1 + _STEP) <= constant.high else -_STEP
    value = constant.value * (1 + step)
    group = "decode." if name.startswith("decode.") else ""
    asked = [case for case in cases if not group or case.engine is not None]
    moved = iter(_timed(asked, constants.with_values({name: value}), estimator.varied(name, value)))
    touched, by = {case.id for case in asked}, math.log1p(step)
    return [(next(moved).error - row.error) / by if row.case.id in touched else 0.0 for row in rows]


def _weight(row: _Timed, rows: Sequence[_Timed]) -> float:
    """Return a row's weight: less where it is far off, and where its source has many alike."""
    alike = sum(other.source == row.source and other.kind == row.kind for other in rows)
    return min(1.0, _FAR / max(abs(row.error), 1e-9)) / _SPREAD**2 / math.sqrt(alike)


def _by_kind(rows: Sequence[_Timed]) -> dict[str, list[_Timed]]:
    kinds = sorted({row.kind for row in rows})
    return {kind: [row for row in rows if row.kind == kind] for kind in kinds}


def _has_experts(case: Case) -> bool:
    model = case.job.policy.model if case.job else case.model
    return model is not None and model.experts > 0
