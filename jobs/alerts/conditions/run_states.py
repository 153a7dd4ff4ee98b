"""Conditions on what a run does: it ends, is retried, loses contact, waits, or makes no step."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from jobs.alerts.scene import Scene, in_scope
from jobs.alerts.sighting import Sighting
from jobs.models import AlertIncident, AlertRule, Attempt

LOOK_BACK = timedelta(days=7)  # at a start, for what ended while nobody looked
OVERLAP = timedelta(minutes=10)  # longer than any transaction that ends an attempt
GIVE_UP = timedelta(days=14)  # a failure that nobody resolved


@dataclass(slots=True, kw_only=True)
class RunStates:
    """Remembers up to when ends were looked at, and since when each run is at its step (and if that was seen)."""

    looked_at: datetime | None = None
    steps: dict[str, tuple[int, int, datetime, bool]] = field(default_factory=dict)

    def look(self, scene: Scene) -> Iterator[Sighting]:
        """Yield what every rule of these kinds sees."""
        rules = scene.rules_of("run_state")
        if rules:
            yield from self._ends(rules, scene)
        yield from self._live(scene)
        yield from _waiting(scene)

    def _ends(self, rules: Sequence[AlertRule], scene: Scene) -> Iterator[Sighting]:
        since = scene.now - LOOK_BACK if self.looked_at is None else self.looked_at - OVERLAP
        ended = Attempt.objects.filter(state__in=("failed", "stopped", "finished"), ended_at__gte=since)
        retried = Attempt.objects.filter(is_automatic=True, created_at__gte=since)
        for attempt in ended.select_related("run"):
            at = attempt.ended_at or scene.now
            yield from _of_attempt(rules, attempt, attempt.state, at)
        for attempt in retried.select_related("run"):
            yield from _of_attempt(rules, attempt, "retried", attempt.created_at)
        yield from _still_failed(rules, scene.now)
        self.looked_at = scene.now

    def _live(self, scene: Scene) -> Iterator[Sighting]:
        live = {attempt.run_id: attempt for attempt in scene.live}
        self.steps = {run_id: stored for run_id, stored in self.steps.items() if run_id in live}
        for run_id, attempt in live.items():
            stored = self.steps.get(run_id)
            if stored is None or stored[:2] != (attempt.number, attempt.run.step):
                self.steps[run_id] = (attempt.number, attempt.run.step, scene.now, stored is not None)
        for scope in scene.scopes("lost_contact"):
            for attempt in scope.attempts:
                silent = scene.now - (attempt.last_contact_at or scene.now)
                is_on = silent >= timedelta(minutes=scope.rule.params["minutes"])
                yield _about(scope.rule, attempt, "lost_contact", is_on=is_on, silent=silent)
        for scope in scene.scopes("no_progress"):
            wanted = timedelta(minutes=scope.rule.params["minutes"])
            for attempt in scope.attempts:
                _number, _step, since, was_seen = self.steps[attempt.run_id]
                stands = scene.now - since >= wanted
                witnessed = stands if stands or was_seen else None  # None: this process did not see its last step
                is_still = witnessed if attempt.state == "running" else False
                yield _about(scope.rule, attempt, "no_progress", is_on=is_still, silent=scene.now - since)


def _of_attempt(rules: Sequence[AlertRule], attempt: Attempt, state: str, at: datetime) -> Iterator[Sighting]:
    for rule in rules:
        params = rule.params
        if state not in params["states"] or at < rule.since or not in_scope(rule, attempt.run):
            continue
        side = attempt.cause.get("side", "")
        if state == "failed" and params["sides"] and side not in params["sides"]:
            continue
        is_latest = attempt.number == attempt.run.latest_attempt
        if state == "failed" and not is_latest:
            continue  # it goes on
        data = {"what": state, "name": attempt.run.name, "side": side, "attempt": attempt.number}
        data |= {key: str(attempt.cause[key])[:300] for key in ("log_line",) if attempt.cause.get(key)}
        data["cause"] = str(attempt.cause.get("text", ""))[:300]
        yield Sighting(
            rule=rule,
            object_id=f"{attempt.run_id}/{attempt.number}{'' if state != 'retried' else '/retry'}",
            run=attempt.run,
            is_on=True,
            data=data,
            is_once=True,
            is_moment=state != "failed",
        )


def _still_failed(rules: Sequence[AlertRule], now: datetime) -> Iterator[Sighting]:
    """Yield for each open failure whether its run still stands there: not resumed, archived or long forgotten."""
    rows = AlertIncident.objects.filter(rule__in=[rule.pk for rule in rules], resolved_at=None)
    by_id = {rule.pk: rule for rule in rules}
    for incident in rows.exclude(run=None).select_related("run"):
        run = incident.run
        assert run is not None
        number = incident.data.get("attempt")
        is_same = run.state == "failed" and run.latest_attempt == number and run.archived_at is None
        is_on = None if is_same and now - incident.opened_at < GIVE_UP else False
        yield Sighting(rule=by_id[incident.rule_id], object_id=incident.object_id, run=run, is_on=is_on, is_once=True)


def _waiting(scene: Scene) -> Iterator[Sighting]:
    rules = scene.rules_of("waiting")
    if not rules:
        return
    for attempt in scene.queued:
        since = max(attempt.created_at, attempt.not_before or attempt.created_at)
        for rule in rules:
            if in_scope(rule, attempt.run):
                is_on = scene.now - since >= timedelta(minutes=rule.params["minutes"])
                data = {"what": "waiting", "name": attempt.run.name, "cause": attempt.run.wait_reason}
                yield Sighting(rule=rule, object_id=attempt.run_id, run=attempt.run, is_on=is_on, data=data)


def _about(rule: AlertRule, attempt: Attempt, what: str, *, is_on: bool | None, silent: timedelta) -> Sighting:
    data = {"what": what, "name": attempt.run.name, "minutes": float(int(silent.total_seconds() // 60))}
    return Sighting(rule=rule, object_id=attempt.run_id, run=attempt.run, is_on=is_on, data=data)
