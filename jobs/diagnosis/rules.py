"""What the rules of diagnosis say of a run: its phases and readings as they are now, and of a capture of it.

What is read is bounded: the spans of the newest whole steps (of those nearest to a capture), the newest values of the
readings that rules look at, and of the files what begins first.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

import numpy as np

from jobs.catalog.knob import KnobValueInvalid, is_live, knobs
from jobs.catalog.spec.parse import SpecInvalid, parse_spec
from jobs.catalog.spec.runspec import RunSpec
from jobs.catalog.value import Value
from jobs.models import Attempt, Capture, Run, Trace
from jobs.telemetry.attempt_spec import latest_spec_json
from jobs.telemetry.chunks import Ints
from jobs.telemetry.clean_series import read_clean
from jobs.telemetry.series import MAX_POINTS, Series
from jobs.telemetry.spans import as_phase_spans, newest_span, read_steps
from jobs.traces.files import files_of, recordings
from jobs.traces.results import answer
from profiling.analysis.summary import within
from profiling.diagnosis.finding import Finding, KnobChange, OfFiles, diagnose, evaluate_files
from profiling.evidence import MOST_STEPS, CaptureFacts, Evidence, Readings, Step
from profiling.phases import BY_KEY

METRICS = (
    "response/length_mean",
    "response/length_p95",
    "response/length_max",
    "response/truncated_fraction",
    "groups/zero_variance_fraction",
    "reward/correct",
    "eval/accuracy",
    "time/step_seconds",
    *(f"time/{phase}_seconds" for phase in BY_KEY),
)
READINGS = (
    "memory_bytes",
    "device_memory_bytes",
    "memory_used_bytes",
    "memory_total_bytes",
    "disk_free_bytes",
    "disk_total_bytes",
    "preemptions",
    "kv_cache_percent",
    "running_requests",
    "running_requests_mean",
    "nearly_empty_percent",
    "waiting_requests",
    "prefix_cache_hit_percent",
    *(f"gpu{index}_memory_{what}_bytes" for index in range(16) for what in ("used", "total")),
)
MAX_SPANS = 100_000
Unchanged = Literal["", "no_effect", "as_it_is", "limit", "choose"]
"""Why a click cannot turn a knob: it means nothing beside the run's others, is so already, is as far as it goes, or
only a person can say."""

_WIDER = (1.5, 12.0, math.inf)


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """What every rule says. `steps` are the first and last step looked at and how many, None where there are none.

    Of files with very many events the rules that look into them look at the first `looked` ns of all `whole` ns.
    """

    findings: tuple[Finding, ...]
    steps: tuple[int, int, int] | None
    looked: int = 0
    whole: int = 0

    @property
    def is_cut(self) -> bool:
        """True if the files hold more than was looked at."""
        return self.looked < self.whole


def diagnose_run(run: Run) -> Diagnosis:
    """Return what every rule that needs no capture says of the run's latest attempt by now."""
    evidence = evidence_of(run)
    return Diagnosis(findings=tuple(diagnose(evidence, live=True)), steps=_looked_at(evidence))


def diagnose_trace(trace: Trace, *, patience: float | None = None) -> Diagnosis:
    """Return what all rules say of the imported files of a trace; an upload has nothing but these.

    Raises: NoAnswer, StillComputing among them while the rules that look into the files do.
    """
    files = files_of(trace)
    capture = trace.capture
    workers = [(file.role, file.rank) for file in files]
    evidence = Evidence() if capture is None else evidence_of(capture.run, capture=capture, workers=workers)

    def work() -> OfFiles:
        with recordings(files) as recorded:
            memory = tuple(one for one in evidence.readings if one.name.endswith("_memory_total_bytes"))
            return evaluate_files(Evidence(recorded=within(recorded), capture=evidence.capture, readings=memory))

    of_files = answer(trace, (files, evidence.capture), OfFiles, work, patience=patience)
    findings = diagnose(evidence, of_files=of_files)
    return Diagnosis(findings=tuple(findings), steps=_looked_at(evidence), looked=of_files.looked, whole=of_files.whole)


def _looked_at(evidence: Evidence) -> tuple[int, int, int] | None:
    steps = evidence.steps
    return (steps[0].number, steps[-1].number, len(steps)) if steps else None


def in_reach(changes: Sequence[KnobChange], spec: RunSpec) -> tuple[KnobChange, ...]:
    """Return the changes of knobs that the run's own trainer, version and algorithm have."""
    return tuple(change for change in changes if change.knob in spec.knobs)


def changed(change: KnobChange, spec: RunSpec) -> Value:
    """Return what a knob becomes when it is turned: twice or half its value, on or off; None if that changes nothing.

    None too where only a person can say, where the run has no such knob, or where it means nothing beside its others.
    """
    return None if change.knob not in spec.knobs else _turned(change, spec)[0]


def why_unchanged(change: KnobChange, spec: RunSpec) -> Unchanged:
    """Return why `changed` has no value for a knob that the run has; "" where it has one."""
    return _turned(change, spec)[1]


def _turned(change: KnobChange, spec: RunSpec) -> tuple[Value, Unchanged]:
    knob, now = knobs()[change.knob], spec.knobs[change.knob].value
    if not is_live(change.knob, spec.values()):
        return None, "no_effect"
    if change.how in ("on", "off") and isinstance(now, bool):
        return (None, "as_it_is") if now == (change.how == "on") else (change.how == "on", "")
    if change.how not in ("raise", "lower") or isinstance(now, bool) or not isinstance(now, int | float) or now <= 0:
        return None, "choose"
    wanted = now * 2 if change.how == "raise" else now / 2
    if knob.type == "float":
        wanted = now + (knob.high - now) / 2 if change.how == "raise" and knob.high <= 1 else wanted
    else:
        wanted = int(wanted)
    try:
        value = knob.check(wanted)
    except KnobValueInvalid:
        return None, "limit"
    return (value, "") if value != now else (None, "limit")


def evidence_of(run: Run, *, capture: Capture | None = None, workers: Sequence[tuple[str, int]] = ()) -> Evidence:
    """Return phases, readings and knobs of a run, and what is known of a capture of it with files of some workers."""
    attempt = capture.attempt if capture else run.latest_attempt
    first_step = _first_step(run, attempt)
    answer = read_clean(run_id=run.pk, names=(*METRICS, *READINGS), num_points=MAX_POINTS)
    spans = as_phase_spans(())
    for factor in _WIDER:  # evaluations and checkpoints lie between steps, and may take longer than many of these
        window = _around(run, capture, answer.series, factor=factor)
        lanes = read_steps(
            run_id=run.pk,
            attempt=attempt,
            first_step=first_step,
            from_ns=window[0],
            to_ns=window[1],
            near_ns=_began(capture) if capture else None,
            limit=MAX_SPANS,
        ).lanes
        spans = as_phase_spans(lanes)
        if window == (None, None) or len(Evidence(spans=spans).all_steps) > MOST_STEPS:
            break
    steps = Evidence(spans=spans).all_steps
    return Evidence(
        spans=spans,
        readings=tuple(_readings(series, steps) for series in answer.series if len(series.x)),
        capture=_facts(capture, workers) if capture else None,
        knobs=_knobs(run),
        profiled=tuple(
            recorded for one in run.captures.filter(attempt=attempt) if (recorded := one.recorded_steps) is not None
        ),
        first_step=first_step,
    )


def _first_step(run: Run, attempt: int) -> int:
    """Return the first step of an attempt: 1, or the one after the checkpoint that it was resumed from."""
    resume_step = Attempt.objects.filter(run=run, number=attempt).values_list("resume_step", flat=True).first()
    return (resume_step or 0) + 1


def _began(capture: Capture) -> int | None:
    """Return when a capture began to record, in Unix ns; None until it has."""
    began_at = capture.state_times.get("recording")
    return int(datetime.fromisoformat(began_at).timestamp() * 1e9) if began_at else None


def _around(
    run: Run, capture: Capture | None, series: Sequence[Series], *, factor: float
) -> tuple[int | None, int | None]:
    """Return the window of time (Unix ns; None: open) that holds the newest steps, or those around a capture."""
    step_times = next((one for one in series if one.name == "time/step_seconds"), None)
    usual = (
        float(np.median(step_times.y[np.isfinite(step_times.y)]))
        if step_times is not None and np.isfinite(step_times.y).any()
        else None
    )
    if usual is None:
        return None, None
    if factor == math.inf:
        return None, None
    margin = int(factor * MOST_STEPS * usual * 1e9)
    if capture is not None and (began := _began(capture)) is not None:
        recorded = int(1.5 * capture.num_steps * usual * 1e9)
        return began - margin, began + recorded + margin
    newest = newest_span(run.pk)
    return (newest - margin, None) if newest is not None else (None, None)


def _readings(series: Series, steps: Sequence[Step]) -> Readings:
    over_time = series.kind == "system"
    return Readings(
        name=series.name,
        role=series.role,
        rank=series.rank,
        step=_step_of(series.x, steps) if over_time else series.x,
        time=series.x if over_time else np.zeros(len(series.x), np.int64),
        value=series.y,
    )


def _step_of(times: Ints, steps: Sequence[Step]) -> Ints:
    """Return the step within which, or right after which, each moment lies; -1 before the first.

    What a step's answers tell is written down when it is over, so a reading at its end still is that step's.
    """
    if not steps:
        return np.full(len(times), -1, np.int64)
    begins = np.array([step.begin for step in steps], np.int64)
    numbers = np.array([step.number for step in steps], np.int64)
    at = np.searchsorted(begins, times, side="right") - 1
    return np.where(at >= 0, numbers[at.clip(0)], -1)


def _facts(capture: Capture, here: Sequence[tuple[str, int]]) -> CaptureFacts:
    missing = capture.meta.get("missing")
    problems = [f"{name}: {why}" for name, why in missing.items()] if isinstance(missing, dict) else []
    workers = capture.meta.get("workers")
    return CaptureFacts(
        steps=capture.recorded_steps,
        asked=tuple(str(name) for name in workers) if isinstance(workers, list) else (),
        here=tuple(f"{role}-{rank}" for role, rank in here),
        problems=(*problems, *([capture.problem] if capture.problem else [])),
    )


def _knobs(run: Run) -> dict[str, object]:
    try:
        spec = parse_spec(latest_spec_json(run))
    except SpecInvalid:  # launched by an older console
        return {}
    return {name: chosen.value for name, chosen in spec.knobs.items()}
