"""The health of a run, judged while it goes on and kept as marks: which symptom, from which step to which.

The reconciler calls `judge_next` every second. What is judged are the metrics as they were after each step since the
last look (of many steps, some), never what came later; so a mark begins where the run went wrong, whenever the console
looked, and looking twice changes nothing: how far a run is judged is kept with its marks, in one transaction.
A mark ends once its symptom has been gone for `QUIET` steps. A resume takes back what was judged beyond its step.
"""

import logging
import math
import statistics
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import InterfaceError, OperationalError, transaction
from django.db.models import F, Q

from jobs.catalog.metric import metric
from jobs.catalog.rules.symptom import asked_for, causes_first, in_metrics, symptoms
from jobs.catalog.spec.parse import SpecInvalid, parse_spec
from jobs.catalog.spec.runspec import RunSpec
from jobs.diagnosis.bands import Band, bands_of, own_metrics
from jobs.diagnosis.numbers import Line, read_lines
from jobs.models import LIVE, Attempt, HealthMark, Run
from jobs.telemetry.attempt_spec import latest_spec_json
from jobs.telemetry.notify import run_changed

log = logging.getLogger(__name__)

LOOK_AGAIN = timedelta(seconds=10)
AFTER_END = timedelta(days=1)  # a console that was away judges what ended meanwhile
AT_ONCE = 12  # steps that one look judges
QUIET = 10  # steps without a symptom that end its mark
BAND = "band:"
_WINDOW = 10  # values whose median is held against a band
_MAX_TEXT = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What was found in a run as it was after a step: finding -> tone and evidence."""

    step: int
    matches: Mapping[str, tuple[str, str]]


def judge_next(*, now: datetime) -> str | None:
    """Judge the run that has waited longest among those with new steps, and return its id; None if there is none."""
    is_due = Q(health_at=None) | Q(health_at__lt=now - LOOK_AGAIN) | Q(health_at__gt=now)
    recent = Q(state__in=LIVE) | Q(ended_at__gte=now - AFTER_END)
    new = ~Q(step=F("health_step")) | ~Q(latest_attempt=F("health_attempt"))
    run = Run.objects.filter(recent, is_due, new, step__gt=0, trashed_at=None).order_by(F("health_at").asc()).first()
    if run is None:
        return None
    try:
        judge(run, now=now)
    except (OperationalError, InterfaceError):
        raise
    except Exception:
        log.exception("the health of run %s could not be judged", run.pk)
        _keep_place(run, run.step, now)
    return run.pk


def judge(run: Run, *, now: datetime) -> None:
    """Bring the marks of a run up to its newest step, or `AT_ONCE` judgements further."""
    try:
        spec = parse_spec(latest_spec_json(run))
    except SpecInvalid:  # launched by an older console
        _keep_place(run, run.step, now)
        return
    since = _since(run)
    steps = _steps_to_judge(since, run.step)
    names = asked_for(spec) | own_metrics(run.project)
    lines = read_lines(run.pk, names, step=steps[0] if steps else run.step)
    own = [band for band in bands_of(run.project, spec.algorithm).values() if band.is_own and band.low is not None]
    judged = [judge_step(spec, lines, step, planned=run.num_steps, bands=own) for step in steps]
    with transaction.atomic():
        held = Run.objects.select_for_update().get(pk=run.pk)
        if (held.health_step, held.health_attempt) != (run.health_step, run.health_attempt):
            return  # somebody else has judged meanwhile
        changed = _take_back(run, since) + _keep_marks(run, judged, now)
        _keep_place(run, steps[-1] if steps else since, now)
        if changed:
            Run.objects.filter(pk=run.pk).update(capture_changes=F("capture_changes") + 1)
            transaction.on_commit(lambda: run_changed(run.pk))


def judge_step(
    spec: RunSpec, lines: Mapping[str, Line], step: int, *, planned: int = 0, bands: Sequence[Band] = ()
) -> Judged:
    """Return what the metrics of a run say as they were after a step. `lines` are its series by metric."""
    numbers = {name: list(ys[: bisect_right(xs, step)]) for name, (xs, ys) in lines.items()}
    matches = {
        name: (symptoms()[name].tone, evidence[0].text)
        for name, evidence in in_metrics(spec=spec, metrics=numbers, planned=planned, step=step).items()
        if symptoms()[name].tone != "hint"
    }
    for band in bands:
        if text := _outside(band, numbers.get(band.metric, ())):
            matches[BAND + band.metric] = ("alarm", text)
    return Judged(step=step, matches=matches)


def alarms_of(run_ids: Iterable[str]) -> Mapping[str, Sequence[HealthMark]]:
    """Return the alarms that hold still of those runs that have any, causes before what follows from them."""
    alarms: dict[str, dict[str, HealthMark]] = {}
    marks = HealthMark.objects.filter(run_id__in=list(run_ids), end_step=None, tone="alarm")
    for mark in marks.order_by("begin_step", "pk"):
        alarms.setdefault(mark.run_id, {})[mark.finding] = mark
    return {
        run: [held[name] for name in causes_first({name: mark.begin_step for name, mark in held.items()})]
        for run, held in alarms.items()
    }


def _outside(band: Band, values: Sequence[float]) -> str:
    newest = values[-_WINDOW:]
    if len(newest) < _WINDOW or band.low is None or band.high is None or not all(map(math.isfinite, newest)):
        return ""
    level = statistics.median(newest)
    if band.low <= level <= band.high:
        return ""
    label = metric(band.metric).label
    return f"{label}: the median of the last {_WINDOW} values is {level:.4g}, outside of {band.low:g} to {band.high:g}"


def _since(run: Run) -> int:
    """Return through which step the run's history is judged: no further than where its latest attempt begins anew."""
    if run.latest_attempt == run.health_attempt:
        return min(run.health_step, run.step)
    attempts = Attempt.objects.filter(run=run, number__gt=run.health_attempt, number__lte=run.latest_attempt)
    return min([run.health_step, *attempts.values_list("resume_step", flat=True)])


def _steps_to_judge(since: int, newest: int) -> list[int]:
    count = min(AT_ONCE, newest - since)
    return [since + (newest - since) * (i + 1) // count for i in range(count)]


def _take_back(run: Run, since: int) -> int:
    """Forget what was judged of steps that a resume has left behind; return how many marks that changed."""
    marks = HealthMark.objects.filter(run=run)
    count = marks.filter(begin_step__gt=since).delete()[0]
    reopened = marks.filter(Q(end_step__gt=since) | Q(last_step__gt=since))
    newest = {mark.finding: mark for mark in reopened.order_by("begin_step")}  # one at most was open at that step
    for mark in newest.values():
        mark.last_step, mark.end_step, mark.ended_at = min(mark.last_step, since), None, None
        mark.save(update_fields=["last_step", "end_step", "ended_at"])
    return count + len(newest)


def _keep_marks(run: Run, judged: Sequence[Judged], now: datetime) -> int:
    """Open, extend and end marks; return how many began or ended."""
    is_open = {mark.finding: mark for mark in HealthMark.objects.filter(run=run, end_step=None)}
    touched: list[HealthMark] = []
    count = 0
    for one in judged:
        for finding, (tone, text) in one.matches.items():
            mark = is_open.get(finding)
            if mark is None:
                mark = HealthMark(run=run, finding=finding, tone=tone, begin_step=one.step, began_at=now)
                is_open[finding] = mark
                count += 1
            mark.last_step, mark.text = one.step, text[:_MAX_TEXT]
        for finding, mark in list(is_open.items()):
            if finding not in one.matches and one.step - mark.last_step >= QUIET:
                mark.end_step, mark.ended_at = mark.last_step, now
                touched.append(is_open.pop(finding))
                count += 1
    for mark in [*touched, *is_open.values()]:  # what has ended first: one of a finding is open
        mark.save()
    return count


def _keep_place(run: Run, step: int, now: datetime) -> None:
    Run.objects.filter(pk=run.pk).update(health_step=step, health_attempt=run.latest_attempt, health_at=now)
