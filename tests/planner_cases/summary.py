"""The figures that the readings add up to, each with its goal: over the cases for fitting, for testing, and all."""

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from jobs.planner.serving.engine_memory import release_of
from tests.planner_cases.measure import Quantity, Reading

Half = Literal["fit", "test", "all"]
HALVES: tuple[Half, ...] = ("fit", "test", "all")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A figure per half (None: no case), as `value` of `num` readings. `goal` is what it must reach, `is_gate` whether
    the check fails where it does not; `least`: a goal that it must not fall below, instead of not exceed."""

    what: str
    unit: str
    num: dict[Half, int]
    value: dict[Half, float | None]
    goal: float | None
    least: bool = False
    is_gate: bool = True

    def reaches(self, half: Half) -> bool:
        """True if there is no goal or no case, or the goal is reached."""
        value = self.value[half]
        if value is None or self.goal is None:
            return True
        return value >= self.goal if self.least else value <= self.goal


def summarize(readings: Sequence[Reading]) -> tuple[Row, ...]:
    """Return every figure that the issue asks for, then those that are goals of the reference alone, ungated."""

    def of(*quantities: Quantity, where: Callable[[Reading], bool] = lambda _: True) -> list[Reading]:
        return [each for each in readings if each.quantity in quantities and where(each)]

    logged = of("memory", where=lambda each: each.case.quality == "L")
    rounded = of("memory", where=lambda each: each.case.quality == "R")
    other = of("memory", where=lambda each: each.case.quality not in ("L", "R"))
    oom = of("verdict", where=lambda each: each.truth == "oom")
    decode = of("decode")
    caches = of("engine cache", where=lambda each: not _is_sglang(each))
    sglang = of("engine cache", where=_is_sglang)
    return (
        _row("parameters, active, KV bytes per token: exact", "%", of("count"), _share_right, 100, least=True),
        _row("training memory, logged: median error", "%", logged, _median, 8),
        _row("training memory, logged: 90th percentile", "%", logged, _p90, 20),
        _row("training memory, rounded by authors: median error", "%", rounded, _median, 15),
        _row("vLLM cache, 0.17 and later: median error", "%", [r for r in caches if _is_recent(r)], _median, 1),
        _row("vLLM cache, before 0.17: median error", "%", [r for r in caches if not _is_recent(r)], _median, 5),
        _row("verdicts right", "%", of("verdict"), _share_right, 95, least=True),
        _row("ran out of memory, and called fitting", "cases", oom, _called_fitting, 0),
        _row("fewest devices within one step", "%", of("fewest devices"), _share_right, 90, least=True),
        _row(
            "throughput and steps inside an interval of at most x2.5",
            "%",
            of("training speed", "RL step"),
            _share_right,
            75,
            least=True,
        ),
        _row("  of training alone", "%", of("training speed"), _share_right, 75, least=True, is_gate=False),
        _row("  of RL steps alone", "%", of("RL step"), _share_right, 75, least=True, is_gate=False),
        _row("training speed: median error", "%", of("training speed"), _median, 25, is_gate=False),
        _row("RL step: median error", "%", of("RL step"), _median, 25, is_gate=False),
        _row("RL phases: median error", "%", of("RL phase"), _median, None, is_gate=False),
        _row(
            "training memory, logged: median, Megatron dense", "%", _dense_megatron(logged), _median, 3, is_gate=False
        ),
        _row("training memory, logged: under by more than 10 %", "%", logged, _far_under, None, is_gate=False),
        _row("training memory, other sources: median error", "%", other, _median, None, is_gate=False),
        _row("host memory: median error", "%", of("host memory"), _median, None, is_gate=False),
        _row("vLLM weights: median error", "%", of("engine weights"), _median, 1, is_gate=False),
        _row("vLLM cache: 90th percentile", "%", caches, _p90, 5, is_gate=False),
        _row("SGLang cache: median error", "%", sglang, _median, 2, is_gate=False),
        _row("decode, dense: median error", "%", [r for r in decode if not _is_moe(r)], _median, 10, is_gate=False),
        _row(
            "decode, mixture of experts: median error",
            "%",
            [r for r in decode if _is_moe(r)],
            _median,
            20,
            is_gate=False,
        ),
        _row("time between tokens: median error", "%", of("token interval"), _median, None, is_gate=False),
        _row("generation of a batch: median error", "%", of("generation"), _median, None, is_gate=False),
        _row("weight sync inside its interval", "%", of("weight sync"), _share_right, None, least=True, is_gate=False),
        _row("weight sync: median error", "%", of("weight sync"), _median, None, is_gate=False),
    )


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that at least this share of them does not exceed."""
    ordered = sorted(values)
    return ordered[max(-(-round(share * len(ordered) * 1000) // 1000) - 1, 0)]


def sizes(readings: Iterable[Reading]) -> list[float]:
    """Return the sizes of the errors in percent; of what was not computed it is without end."""
    return [abs(each.error) * 100 if each.error is not None else float("inf") for each in readings]


def _row(
    what: str,
    unit: str,
    readings: Sequence[Reading],
    figure: Callable[[Sequence[Reading]], float],
    goal: float | None,
    *,
    least: bool = False,
    is_gate: bool = True,
) -> Row:
    halves: dict[Half, list[Reading]] = {
        "fit": [each for each in readings if each.case.is_for_fitting],
        "test": [each for each in readings if not each.case.is_for_fitting],
        "all": list(readings),
    }
    return Row(
        what=what,
        unit=unit,
        num={half: len(found) for half, found in halves.items()},
        value={half: figure(found) if found else None for half, found in halves.items()},
        goal=goal,
        least=least,
        is_gate=is_gate,
    )


def _median(readings: Sequence[Reading]) -> float:
    return statistics.median(sizes(readings))


def _p90(readings: Sequence[Reading]) -> float:
    return percentile(sizes(readings), 0.9)


def _share_right(readings: Sequence[Reading]) -> float:
    return 100 * sum(bool(each.is_right) for each in readings) / len(readings)


def _called_fitting(readings: Sequence[Reading]) -> float:
    return sum(each.estimate == "fits" for each in readings)


def _far_under(readings: Sequence[Reading]) -> float:
    return 100 * sum(each.error is not None and each.error < -0.1 for each in readings) / len(readings)


def _is_sglang(reading: Reading) -> bool:
    return reading.case.engine is not None and reading.case.engine.name == "sglang"


def _is_recent(reading: Reading) -> bool:
    """Return whether an engine is of 0.17 or later, as one is whose release nobody says."""
    engine = reading.case.engine
    return engine is not None and release_of(engine) >= (0, 17)


def _is_moe(reading: Reading) -> bool:
    return reading.case.model is not None and reading.case.model.experts > 0


def _dense_megatron(readings: Sequence[Reading]) -> list[Reading]:
    return [
        each
        for each in readings
        if each.case.job is not None and each.case.job.policy.family == "megatron" and not _is_moe(each)
    ]
