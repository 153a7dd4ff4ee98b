"""Conditions on what a run reports: a metric beyond a threshold, or not reported at all.

Frames are read as they come, each once, and only of runs that some rule looks at: a pass costs what is new. At a start
the newest points are read back, so that a threshold needs no patience; when something was last reported is not known
until this process has looked for as long as the rule asks.
"""

import logging
import math
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from jobs.alerts.scene import RuleScope, Scene
from jobs.alerts.sighting import Sighting
from jobs.catalog.metric import current_name
from jobs.models import Attempt, Frame
from jobs.runs.header import LOST_AFTER
from jobs.telemetry.clean_series import read_clean
from jobs.telemetry.columns import collect
from jobs.telemetry.frames import decode_frame
from jobs.telemetry.series import SeriesWindow

log = logging.getLogger(__name__)

KEPT = 600  # points of a series; a rule looks at no more
BACK_STEPS = 600
FRAMES_AT_ONCE = 100  # of a run in one pass; the next one goes on
BUDGET_SECONDS = 0.6  # of a pass; runs that were not reached come first in the next


@dataclass(slots=True)
class SeriesPoint:
    """What was reported at one step (or at one moment, of a machine): the extremes over ranks and roles."""

    x: int
    t: int  # Unix ns
    low: float
    high: float
    is_finite: bool = True


@dataclass(slots=True, kw_only=True)
class TrackedRun:
    """How far the frames of a run are read, and the newest points of what rules ask for."""

    attempt: int
    seq: int
    names: frozenset[str]
    series: dict[str, deque[SeriesPoint]] = field(default_factory=dict)
    reported_at: dict[str, datetime] = field(default_factory=dict)  # by the console's clock
    since: datetime  # when this process began to follow it, or the attempt began to run

    def add(self, name: str, x: int, t: int, y: float) -> None:
        """Take in one value."""
        stored = self.series.setdefault(name, deque(maxlen=KEPT))
        point = next((p for p in list(stored)[-4:] if p.x == x), None)  # ranks report a step one after the other
        if point is None:
            point = SeriesPoint(x, t, math.inf, -math.inf)
            stored.append(point)
        if math.isfinite(y):
            point.low, point.high, point.t = min(point.low, y), max(point.high, y), max(point.t, t)
        else:
            point.is_finite = False
            point.t = max(point.t, t)


class MetricWatch:
    """Follows the runs that rules of thresholds and absence look at."""

    def __init__(self) -> None:
        self._runs: dict[str, TrackedRun] = {}

    def look(self, scene: Scene) -> Iterator[Sighting]:
        """Yield what every rule of these kinds sees."""
        scopes = [scope for kind in ("threshold", "absence") for scope in scene.scopes(kind)]
        wanted: dict[str, set[str]] = {}
        for scope in scopes:
            for attempt in scope.attempts:
                wanted.setdefault(attempt.run_id, set()).add(current_name(scope.rule.params["metric"]))
        self._runs = {run_id: run for run_id, run in self._runs.items() if run_id in wanted}
        self._follow({a.run_id: a for scope in scopes for a in scope.attempts}, wanted, scene.now)
        for scope in scopes:
            is_threshold = scope.rule.kind == "threshold"
            yield from self._beyond(scope) if is_threshold else self._absent(scope, scene.now)

    def _follow(self, attempts: Mapping[str, Attempt], wanted: Mapping[str, set[str]], now: datetime) -> None:
        until = time.monotonic() + BUDGET_SECONDS
        # Who is furthest behind comes first, so that nobody is left out for ever.
        unknown_first = sorted(
            attempts,
            key=lambda run_id: self._runs[run_id].seq - attempts[run_id].run.seq if run_id in self._runs else -math.inf,
        )
        for run_id in unknown_first:
            if time.monotonic() > until:
                log.info("alerts: more was reported than one pass reads; the next one goes on")
                return
            attempt, names = attempts[run_id], frozenset(wanted[run_id])
            tracked = self._runs.get(run_id)
            if tracked is None or tracked.attempt != attempt.number or tracked.names != names:
                tracked = self._runs[run_id] = self._begin(attempt, names, tracked, now)
            if tracked.seq < attempt.run.seq:
                self._read(run_id, tracked)

    def _begin(self, attempt: Attempt, names: frozenset[str], before: TrackedRun | None, now: datetime) -> TrackedRun:
        """Return the run with its newest points read back from the database."""
        is_same = before is not None and before.attempt == attempt.number
        started = attempt.started_at or now
        tracked = TrackedRun(
            attempt=attempt.number,
            seq=attempt.run.seq,
            names=names,
            reported_at=dict(before.reported_at) if before is not None and is_same else {},
            since=before.since
            if before is not None and is_same
            else (now if before is None else max(started, before.since)),
        )
        window = SeriesWindow(low=max(0, attempt.run.step - BACK_STEPS))
        answer = read_clean(run_id=attempt.run_id, names=names, num_points=2 * KEPT, window=window)
        tracked.seq = answer.through_seq
        for series in answer.series:
            for x, y in zip(series.x[-KEPT:].tolist(), series.y[-KEPT:].tolist(), strict=True):
                tracked.add(series.name, x, x if series.kind == "system" else 0, float(y))
        return tracked

    def _read(self, run_id: str, tracked: TrackedRun) -> None:
        rows = Frame.objects.filter(run_id=run_id, seq__gt=tracked.seq).order_by("seq")
        for seq, attempt, at, payload in rows.values_list("seq", "attempt", "at", "payload")[:FRAMES_AT_ONCE]:
            tracked.seq = seq
            text = bytes(payload)
            if attempt != tracked.attempt or not any(f'"{name}"'.encode() in text for name in tracked.names):
                continue
            for (_kind, name, _role, _rank), points in collect([decode_frame(text)], wanted=tracked.names).items():
                tracked.reported_at[name] = at
                for x, t, y in zip(points.x.tolist(), points.t.tolist(), points.y.tolist(), strict=True):
                    tracked.add(name, x, t, y)

    def _beyond(self, scope: RuleScope) -> Iterator[Sighting]:
        params = scope.rule.params
        name = current_name(params["metric"])
        for attempt in scope.attempts:
            tracked = self._runs.get(attempt.run_id)
            points = list(tracked.series.get(name, ()))[-max(params["steps"], KEPT) :] if tracked else []
            is_on, shown = judge(points, params)
            data: dict[str, object] = {"what": "threshold", "name": attempt.run.name, "metric": name}
            data |= {"direction": params["direction"], "limit": params["value"], "reports": params["steps"]}
            value = None
            if points:
                value = shown if shown is not None and math.isfinite(shown) else None
                step = points[-1].x if points[-1].x < 1 << 40 else attempt.run.step  # of a machine x is a time
                data |= {"value": f"{shown:.5g}" if shown is not None else "—", "step": step}
            yield Sighting(
                rule=scope.rule, object_id=attempt.run_id, run=attempt.run, is_on=is_on, data=data, value=value
            )

    def _absent(self, scope: RuleScope, now: datetime) -> Iterator[Sighting]:
        name = current_name(scope.rule.params["metric"])
        limit = timedelta(minutes=scope.rule.params["minutes"])
        for attempt in scope.attempts:
            tracked = self._runs.get(attempt.run_id)
            data: dict[str, object] = {"what": "absence", "name": attempt.run.name, "metric": name}
            is_on: bool | None = None  # whoever lost contact reports nothing at all, which has a rule of its own
            is_here = attempt.last_contact_at is not None and now - attempt.last_contact_at <= LOST_AFTER
            if tracked is not None and is_here and attempt.state == "running":
                last = tracked.reported_at.get(name)
                silent = now - (last or tracked.since)
                is_on = True if silent >= limit else (False if last is not None else None)
                data |= {"minutes": float(int(silent.total_seconds() // 60))}
            yield Sighting(rule=scope.rule, object_id=attempt.run_id, run=attempt.run, is_on=is_on, data=data)


def judge(points: Sequence[SeriesPoint], params: Mapping[str, float | str]) -> tuple[bool | None, float | None]:
    """Return whether a series is beyond its threshold, with its newest value; None while nobody can say.

    It is when the newest `steps` points are, and all of the last `minutes`. It is not when as many are back: in
    between nothing changes, so that a value that dances around its threshold opens one incident and not twenty.
    """
    if not points:
        return None, None
    direction, limit = params["direction"], float(params["value"])
    needed, newest = int(params["steps"]), points[-1]

    def is_beyond(point: SeriesPoint) -> bool:
        if direction == "not_finite":
            return not point.is_finite
        return point.high > limit if direction == "above" else point.low < limit

    recent = [is_beyond(point) for point in points[-needed:]]
    shown = newest.high if direction == "above" else newest.low
    shown = math.nan if not math.isfinite(shown) else shown
    if len(recent) < needed:
        return (None if any(recent) else False), shown
    if not any(recent):
        return False, shown
    if not all(recent):
        return None, shown
    if minutes := float(params["minutes"]):
        begin = newest.t - int(minutes * 60e9)
        within = [point for point in points if point.t >= begin]
        has_whole = any(0 < point.t <= begin for point in points)
        if not has_whole or not all(map(is_beyond, within)):
            return None, shown
    return True, shown
