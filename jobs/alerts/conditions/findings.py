"""Conditions on what the console says of a run by itself: its symptoms, and the rules of diagnosis.

Both read logs and series, which takes a tenth of a second a run; so a pass looks at one run, each again after a minute
at the earliest and only if it has reported since. In between, what was found holds.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from jobs.alerts.scene import Scene, in_scope
from jobs.alerts.sighting import Sighting
from jobs.catalog.rules.symptom import symptoms
from jobs.catalog.spec.parse import SpecInvalid
from jobs.diagnosis.rules import diagnose_run
from jobs.diagnosis.symptoms import run_symptoms
from jobs.models import AlertIncident, AlertRule, Run

log = logging.getLogger(__name__)

LOOK_AGAIN = timedelta(seconds=60)
AFTER_END = timedelta(minutes=10)  # the last lines of a log come after a failure


@dataclass(slots=True, kw_only=True)
class FoundInRun:
    """What was found in a run when, id -> title and sentence; up to which frame and in which state."""

    at: datetime
    seq: int
    state: str
    attempt: int
    matches: Mapping[str, tuple[str, str]]


@dataclass(slots=True, kw_only=True)
class FindingWatch:
    """Looks at one run a pass."""

    kind: str  # symptom | diagnosis
    seen: dict[str, FoundInRun] = field(default_factory=dict)

    def look(self, scene: Scene) -> Iterator[Sighting]:
        """Yield what every rule of the kind sees."""
        rules = scene.rules_of(self.kind)
        if not rules:
            self.seen.clear()
            return
        failed = Run.objects.filter(state="failed", ended_at__gte=scene.now - AFTER_END)
        runs = {run.pk: run for run in [*(a.run for a in scene.live), *failed]}
        runs = {pk: run for pk, run in runs.items() if any(in_scope(rule, run) for rule in rules)}
        self.seen = {pk: seen for pk, seen in self.seen.items() if pk in runs}
        self._look_at_one(runs, scene.now)
        for rule in rules:
            yield from self._of_rule(rule, runs)

    def _look_at_one(self, runs: Mapping[str, Run], now: datetime) -> None:
        due = [run for run in runs.values() if self._is_due(run, now)]
        if not due:
            return
        run = min(due, key=lambda run: self.seen[run.pk].at.timestamp() if run.pk in self.seen else 0.0)
        matches: Mapping[str, tuple[str, str]] = {}
        try:
            matches = _LOOKS[self.kind](run, now)
        except SpecInvalid:
            log.debug("run %s was launched by an older console", run.pk)
        except Exception:
            log.exception("alerts: %s of run %s could not be looked for", self.kind, run.pk)
            matches = self.seen[run.pk].matches if run.pk in self.seen else {}
        self.seen[run.pk] = FoundInRun(
            at=now, seq=run.seq, state=run.state, attempt=run.latest_attempt, matches=matches
        )

    def _is_due(self, run: Run, now: datetime) -> bool:
        seen = self.seen.get(run.pk)
        if seen is None or (seen.state, seen.attempt) != (run.state, run.latest_attempt):
            return True
        return now - seen.at >= LOOK_AGAIN and seen.seq != run.seq

    def _of_rule(self, rule: AlertRule, runs: Mapping[str, Run]) -> Iterator[Sighting]:
        wanted = set(rule.params.get("symptoms") or rule.params.get("rules") or ())
        reported: set[str] = set()
        for pk, seen in self.seen.items():
            if not in_scope(rule, runs[pk]):
                continue
            for what, (title, said) in seen.matches.items():
                if what not in wanted if wanted else self.kind == "symptom" and symptoms()[what].tone != "alarm":
                    continue  # who names none means what is wrong, not what is good or only costs time
                reported.add(f"{pk}/{what}")
                data = {"what": self.kind, "name": runs[pk].name, "found": title, "said": said, "id": what}
                yield Sighting(rule=rule, object_id=f"{pk}/{what}", run=runs[pk], is_on=True, data=data)
        # An incident of a run that was not looked at yet, or that stands where it failed, stays as it is.
        for incident in AlertIncident.objects.filter(rule=rule, resolved_at=None).select_related("run"):
            run = incident.run
            if run is None or incident.object_id in reported or run.pk in self.seen:
                continue
            if run.pk in runs or (run.state == "failed" and run.archived_at is None):
                yield Sighting(rule=rule, object_id=incident.object_id, run=run, is_on=None)


def _symptoms(run: Run, now: datetime) -> dict[str, tuple[str, str]]:
    matched = run_symptoms(run, now=now).matches
    return {
        match.symptom.id: (match.symptom.title, match.evidence[0].text[:300] if match.evidence else "")
        for match in matched
    }


def _findings(run: Run, _now: datetime) -> dict[str, tuple[str, str]]:
    fires = [finding for finding in diagnose_run(run).findings if finding.state == "fires"]
    return {finding.key: (finding.rule.title, finding.sentence()[:300]) for finding in fires}


_LOOKS: Mapping[str, Callable[[Run, datetime], dict[str, tuple[str, str]]]] = {
    "symptom": _symptoms,
    "diagnosis": _findings,
}
