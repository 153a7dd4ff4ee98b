"""One pass over all rules: look, bring the incidents up to it, send what waits.

It is cheap, so that it may run every two seconds: a handful of queries, the frames that are new, one run's symptoms.
Nothing but patience is lost when its process is.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta

from django.db import InterfaceError, OperationalError, close_old_connections, connection
from django.utils import timezone

from jobs.alerts.conditions.findings import FindingWatch
from jobs.alerts.conditions.metrics import MetricWatch
from jobs.alerts.conditions.run_states import RunStates
from jobs.alerts.conditions.system import SystemWatch
from jobs.alerts.incidents import apply
from jobs.alerts.outbox import Sweeper
from jobs.alerts.rules import add_presets
from jobs.alerts.scene import Scene, read_scene
from jobs.alerts.sighting import Sighting
from jobs.models import AlertIncident, AlertMute, AlertRule

log = logging.getLogger(__name__)

INTERVAL_SECONDS = 2.0
SLOW_SECONDS = 1.0
KEPT = timedelta(days=90)  # resolved incidents
TIDY_EVERY = timedelta(hours=1)


class Evaluator:
    """Evaluates every rule, again and again; what it remembers is what patience needs."""

    def __init__(self) -> None:
        self._began_at: datetime | None = None
        self._tidied_at: datetime | None = None
        self._sweeper = Sweeper()
        self._watches: tuple[tuple[frozenset[str], Callable[[Scene], Iterator[Sighting]]], ...] = (
            (frozenset({"run_state", "lost_contact", "waiting", "no_progress"}), RunStates().look),
            (frozenset({"threshold", "absence"}), MetricWatch().look),
            (frozenset({"symptom"}), FindingWatch(kind="symptom").look),
            (frozenset({"diagnosis"}), FindingWatch(kind="diagnosis").look),
            (frozenset({"queue", "disk", "nodes", "ray", "console"}), SystemWatch().look),
        )

    def step(self, now: datetime) -> None:
        """Do one pass. A group of conditions that fails is logged, and the others go on."""
        self._began_at = self._began_at or now
        add_presets(now)
        scene = read_scene(now=now, began_at=self._began_at)
        for kinds, look in self._watches:
            rules = [rule for rule in scene.rules if rule.kind in kinds]
            try:
                apply(look(scene), rules=rules, now=now)
            except (OperationalError, InterfaceError):
                raise
            except Exception:
                log.exception("alerts: %s could not be looked at", ", ".join(sorted(kinds)))
        self._end_of_rules(scene, now)
        self._sweeper.sweep(now)
        self._tidy(now)

    def _end_of_rules(self, scene: Scene, now: datetime) -> None:
        """Resolve what rules have open that are switched off by now; nobody is told."""
        off = AlertIncident.objects.filter(resolved_at=None).exclude(rule__in=[rule.pk for rule in scene.rules])
        off.filter(rule__in=AlertRule.objects.filter(is_enabled=False)).update(
            state="resolved", resolved_at=now, updated_at=now
        )

    def _tidy(self, now: datetime) -> None:
        if self._tidied_at is not None and now - self._tidied_at < TIDY_EVERY:
            return
        self._tidied_at = now
        AlertMute.objects.filter(until__lt=now).delete()
        AlertIncident.objects.filter(resolved_at__lt=now - KEPT).delete()


def run_until(ending: threading.Event) -> None:
    """Evaluate every two seconds until `ending` is set; a database that goes away is asked again."""
    evaluator = Evaluator()
    while not ending.is_set():
        began = time.monotonic()
        try:
            evaluator.step(timezone.now())
        except (OperationalError, InterfaceError):
            log.warning("alerts: the database is away", exc_info=True)
            connection.close()
        except Exception:
            log.exception("alerts: a pass failed; the next one tries again")
        took = time.monotonic() - began
        if took > SLOW_SECONDS:
            log.info("alerts: a pass took %.1f s", took)
        close_old_connections()
        ending.wait(max(0.2, INTERVAL_SECONDS - took))
    connection.close()
