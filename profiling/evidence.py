"""What diagnosis looks at: phases, readings, and what captures recorded, whoever gathered them.

Every number is computed over *whole* steps, the newest `MOST_STEPS` of them, and the first step of an attempt is left
out, wherever what is looked at begins: it pays for warming up. What was not recorded stays None or empty, so that a
rule can say so.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from profiling.phases import STEP_PHASES

if TYPE_CHECKING:
    from profiling.trace.store import Store

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Texts = npt.NDArray[np.object_]

MOST_STEPS = 50
LEAST_STEPS = 3
"""Fewer steps say nothing of a run: a median of two is one of them."""
SETTLE = 1
"""Steps after a recording in which its files are still written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseSpans:
    """Spans as columns, all [n]: `start` in Unix ns, `duration` in ns; `depth` 0 is a phase, more a detail of it."""

    role: Texts
    rank: Ints
    step: Ints
    phase: Texts
    name: Texts
    depth: Ints
    start: Ints
    duration: Ints

    def __len__(self) -> int:
        return len(self.rank)

    def take(self, rows: npt.NDArray[np.bool_] | Ints) -> "PhaseSpans":
        """Return the chosen rows."""
        return PhaseSpans(**{name: getattr(self, name)[rows] for name in self.__slots__})


def phase_spans(rows: Iterable[tuple[str, int, int, str, str, int, int, int]]) -> PhaseSpans:
    """Return rows of (role, rank, step, phase, name, depth, start, duration) as columns."""
    columns = list(zip(*rows, strict=True)) or [()] * 8

    def texts(values: Sequence[str]) -> Texts:
        made = np.empty(len(values), object)
        made[:] = values
        return made

    role, rank, step, phase, name, depth, start, duration = columns
    return PhaseSpans(
        role=texts(role),
        rank=np.asarray(rank, np.int64),
        step=np.asarray(step, np.int64),
        phase=texts(phase),
        name=texts(name),
        depth=np.asarray(depth, np.int64),
        start=np.asarray(start, np.int64),
        duration=np.asarray(duration, np.int64),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Readings:
    """One series of a metric or reading: `step` (-1 outside of all steps), `time` in Unix ns (0: not known), `value`.

    All [n], in the order they came.
    """

    name: str
    role: str
    rank: int
    step: Ints
    time: Ints
    value: Floats

    @property
    def finite(self) -> Floats:
        """Its values that are numbers."""
        return self.value[np.isfinite(self.value)]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedTrace:
    """One imported file of a capture, and the worker it is of ("" and -1 where that is not known).

    `until` (Unix ns): rules look at what begins before it; None for all of the file.
    """

    store: "Store"
    role: str = ""
    rank: int = -1
    until: int | None = None

    @property
    def has_clock(self) -> bool:
        """Return False where only lengths mean something: when things ran, and what lay between, is not known."""
        return self.store.facts.has_clock

    @property
    def shows_work(self) -> bool:
        """Return True if it tells when threads or devices did something: counters, calls and lengths alone do not."""
        return self.has_clock and any(lane.events and lane.kind in ("thread", "stream") for lane in self.store.lanes)

    @property
    def begin(self) -> int:
        """When the file begins, in Unix ns."""
        return self.store.begin

    @property
    def end(self) -> int:
        """Up to when it is looked at, in Unix ns."""
        return self.store.end if self.until is None else max(self.store.begin, min(self.store.end, self.until))

    @property
    def window(self) -> int:
        """Length of what is looked at, at least 1. [ns]"""
        return max(1, self.end - self.begin)

    def events(self, **chosen: Any) -> dict[str, npt.NDArray[Any]]:
        """Return columns of the events that are looked at, as Store.events does; an end of the window cuts them."""
        columns = self.store.events(**{"end": self.until, **chosen})
        if self.until is not None and "dur" in columns:
            columns["dur"] = np.minimum(columns["dur"], np.maximum(self.until - columns["ts"], 0))
        return columns


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureFacts:
    """What is known of the capture itself: which steps, which workers were asked for, which of them are here."""

    steps: tuple[int, int] | None = None
    asked: tuple[str, ...] = ()
    here: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One whole training step, by the driver's phases: `begin` and `end` in Unix ns.

    A trainer that tells only how long its steps took has them one after the other from 0 on.
    """

    number: int
    begin: int
    end: int

    @property
    def seconds(self) -> float:
        """Its wall time."""
        return (self.end - self.begin) / 1e9


@dataclass(frozen=True, kw_only=True, eq=False)
class Evidence:
    """All that the rules may look at. `knobs` are the run's values by id, {} where there is no run."""

    spans: PhaseSpans = field(default_factory=lambda: phase_spans(()))
    readings: tuple[Readings, ...] = ()
    recorded: tuple[RecordedTrace, ...] = ()
    capture: CaptureFacts | None = None
    knobs: Mapping[str, object] = field(default_factory=dict)
    profiled: tuple[tuple[int, int], ...] = ()
    """First and last step of every recording of the run: what a profiler holds is no memory of the run's."""
    first_step: int = 1
    """The first step of the attempt: one that was resumed begins after its checkpoint's."""

    # -- steps and phases --

    @cached_property
    def all_steps(self) -> tuple[Step, ...]:
        """Every whole step, oldest first: from its first phase on the driver to the first phase of the next one.

        The last one ends with its last phase, and counts once its weights are synchronised, or, without a rollout
        engine, once its update is over: a step that is under way is none.
        """
        return self._steps_of_spans or self._steps_of_metrics

    @cached_property
    def _steps_of_spans(self) -> tuple[Step, ...]:
        driver_spans = self._on_driver(STEP_PHASES)
        driver_spans = driver_spans.take(driver_spans.step > 0)
        numbers = np.unique(driver_spans.step)
        if not len(numbers):
            return ()
        order = np.argsort(driver_spans.step, kind="stable")
        step, start = driver_spans.step[order], driver_spans.start[order]
        first = np.searchsorted(step, numbers)
        begins = np.minimum.reduceat(start, first).tolist()
        ends = np.maximum.reduceat(start + driver_spans.duration[order], first).tolist()
        newest = set(driver_spans.phase[driver_spans.step == numbers[-1]])
        usual = set(driver_spans.phase[driver_spans.step != numbers[-1]]) if len(numbers) > 1 else newest
        steps = []
        for i, number in enumerate(numbers):
            is_last = i + 1 == len(numbers)
            if is_last and not usual <= newest:
                continue
            follows = not is_last and numbers[i + 1] == number + 1
            end = begins[i + 1] if follows and begins[i + 1] > begins[i] else ends[i]
            steps.append(Step(number=int(number), begin=begins[i], end=max(end, begins[i] + 1)))
        return tuple(steps)

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """The newest whole steps without the first of the attempt."""
        return tuple(step for step in self.all_steps if step.number != self.first_step)[-MOST_STEPS:]

    @property
    def has_steps(self) -> bool:
        """Return True if there are enough of them to say something."""
        return len(self.steps) >= LEAST_STEPS

    @property
    def has_times(self) -> bool:
        """Return True if it is known when the steps were, not only how long they took."""
        return bool(self._steps_of_spans)

    @property
    def window(self) -> tuple[int, int]:
        """From the first to the last of `steps`, in Unix ns; (0, 0) where it is not known when they were."""
        return (self.steps[0].begin, self.steps[-1].end) if self.steps and self.has_times else (0, 0)

    @cached_property
    def step_seconds(self) -> Floats:
        """Wall time of each of `steps`. [s]"""
        return np.array([step.seconds for step in self.steps])

    @cached_property
    def is_recorded(self) -> npt.NDArray[np.bool_]:
        """Which of `steps` a profiler slowed down: those it recorded, and those in which its files were written. [n]"""
        numbers = np.array([step.number for step in self.steps], np.int64)
        recorded = np.zeros(len(numbers), np.bool_)
        for first, last in self.profiled:
            recorded |= (first <= numbers) & (numbers <= last + SETTLE)
        return recorded

    def phase_seconds(self, phase: str) -> Floats | None:
        """Return the seconds of a phase on the driver in each of `steps` [s]; None if it was told of too few.

        A trainer without spans may leave steps out: those are NaN, which is not 0.
        """
        driver_spans = self._on_driver((phase,))
        numbers = [step.number for step in self.steps]
        if len(driver_spans):
            return _sums(driver_spans.step, driver_spans.duration, np.array(numbers, np.int64)) / 1e9
        reading = self.reading(f"time/{phase}_seconds", role="driver")
        if reading is None:
            return None
        by_step = dict(zip(reading.step.tolist(), reading.value.tolist(), strict=True))
        seconds = np.array([by_step.get(number, np.nan) for number in numbers])
        return seconds if np.isfinite(seconds).sum() >= LEAST_STEPS else None

    def share(self, phase: str) -> float | None:
        """Return the median share of step time that a phase takes on the driver; None if it is not known."""
        seconds = self.phase_seconds(phase)
        return None if seconds is None else float(np.nanmedian(seconds / self.step_seconds))

    def by_rank(self, role: str, phase: str, name: str = "") -> tuple[Ints, Floats] | None:
        """Return the ranks [r] and their own seconds in a phase in each step [r, s]; None below two ranks.

        With `name` those in a detail of it. Steps in which a rank has no such span are left out for all.
        """
        spans = self.spans
        is_meant = (spans.depth == 0) if not name else (spans.depth > 0) & (spans.name == name)
        rank_spans = spans.take((spans.role == role) & (spans.phase == phase) & is_meant)
        ranks = np.unique(rank_spans.rank)
        numbers = np.array([step.number for step in self.steps], np.int64)
        if len(ranks) < 2 or not len(numbers):
            return None
        place, step = (
            np.searchsorted(ranks, rank_spans.rank),
            np.searchsorted(numbers, rank_spans.step).clip(0, len(numbers) - 1),
        )
        is_inside = numbers[step] == rank_spans.step
        seconds = np.zeros((len(ranks), len(numbers)))
        np.add.at(seconds, (place[is_inside], step[is_inside]), rank_spans.duration[is_inside] / 1e9)
        whole = (seconds > 0).all(axis=0)
        return (ranks, seconds[:, whole]) if whole.sum() >= LEAST_STEPS else None

    def details(self, phase: str, name: str) -> PhaseSpans:
        """Return the details of that name inside a phase, in the steps looked at."""
        spans = self.spans
        numbers = [step.number for step in self.steps]
        rows = (spans.phase == phase) & (spans.name == name) & (spans.depth > 0) & np.isin(spans.step, numbers)
        return spans.take(rows)

    def _on_driver(self, phases: Sequence[str]) -> PhaseSpans:
        spans = self.spans
        return spans.take((spans.role == "driver") & (spans.depth == 0) & np.isin(spans.phase, list(phases)))

    @cached_property
    def _steps_of_metrics(self) -> tuple[Step, ...]:
        """Steps of a trainer that tells how long they took and not when their phases began."""
        step_times = self.reading("time/step_seconds", role="driver")
        if step_times is None:
            return ()
        keep = (step_times.step > 0) & np.isfinite(step_times.value) & (step_times.value > 0)
        ends = np.cumsum(step_times.value[keep] * 1e9).astype(np.int64)
        begins = np.concatenate(([0], ends[:-1]))
        numbers = step_times.step[keep].tolist()
        return tuple(
            Step(number=number, begin=begin, end=end)
            for number, begin, end in zip(numbers, begins.tolist(), ends.tolist(), strict=True)
        )

    # -- readings --

    def reading(self, name: str, *, role: str = "", rank: int = -1) -> Readings | None:
        """Return the one series of that name (of a role and rank where given), None if nothing told it."""
        return next(iter(self.all_readings(name, role=role, rank=rank)), None)

    def all_readings(self, name: str, *, role: str = "", rank: int = -1) -> tuple[Readings, ...]:
        """Return the series of that name, of every role and rank that is meant."""
        return tuple(
            one
            for one in self.readings
            if one.name == name and (not role or one.role == role) and rank in (-1, one.rank)
            if np.isfinite(one.value).any()
        )

    def in_steps(self, one: Readings) -> Floats:
        """Return its finite values in the steps looked at; all of them where it names no steps."""
        numbers = [step.number for step in self.steps]
        values = one.value[np.isin(one.step, numbers)] if (one.step > 0).any() and numbers else one.value
        return values[np.isfinite(values)]


def _sums(keys: Ints, values: Ints, wanted: Ints) -> Floats:
    """Return the sum of the values [n] of each wanted key [w], which ascend, by their keys [n]."""
    at = np.searchsorted(wanted, keys).clip(0, max(len(wanted) - 1, 0))
    totals = np.zeros(len(wanted))
    if len(wanted):
        is_inside = wanted[at] == keys
        np.add.at(totals, at[is_inside], values[is_inside])
    return totals
