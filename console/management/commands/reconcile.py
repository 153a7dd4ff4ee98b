"""`manage.py reconcile`: hold what should be against what Ray says, every second; one process does it at a time."""

import logging
import signal
import threading
import time
from typing import Any

from django.core.management.base import BaseCommand
from django.db import InterfaceError, OperationalError, connection
from django.utils import timezone

from console.hardening import harden
from jobs.alerts.evaluation import run_until
from jobs.processes.reconcile import ReconcilerState, reconcile
from jobs.telemetry.heartbeats import Heartbeat
from jobs.telemetry.lock import sole_holder

log = logging.getLogger(__name__)

INTERVAL_SECONDS = 1.0
_ALERTS_END_SECONDS = 5.0  # a message that is being sent then is sent again by its lease


class Command(BaseCommand):
    """Run the reconciler until SIGTERM or Ctrl-C."""

    help = "Compare runs with Ray every second and heal what was lost"
    requires_system_checks = []

    def handle(self, *_args: Any, **_options: Any) -> None:
        """Loop; a step that fails is logged and the next one tries again."""
        harden()
        ending = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: ending.set())
        memory = ReconcilerState()
        while not ending.is_set():
            try:
                with sole_holder("reconcile", ending=ending) as is_mine:
                    if is_mine:
                        self._loop(ending, memory)
            except (OperationalError, InterfaceError):
                log.warning("the database is away", exc_info=True)
                connection.close()  # the lock went with it
                ending.wait(INTERVAL_SECONDS)

    def _loop(self, ending: threading.Event, memory: ReconcilerState) -> None:
        is_over = threading.Event()  # alerts have a thread of their own: a slow webhook holds up no run
        alerts = threading.Thread(target=run_until, args=(is_over,), name="alerts", daemon=True)
        alerts.start()
        try:
            self._steps(ending, memory)
        finally:
            is_over.set()
            alerts.join(timeout=_ALERTS_END_SECONDS)

    def _steps(self, ending: threading.Event, memory: ReconcilerState) -> None:
        heartbeat = Heartbeat("reconcile")
        while not ending.is_set():
            began = time.monotonic()
            try:
                reconcile(now=timezone.now(), memory=memory)
                heartbeat.beat()
            except (OperationalError, InterfaceError):
                raise
            except Exception:
                log.exception("a step failed; the next one tries again")
            ending.wait(max(0.05, INTERVAL_SECONDS - (time.monotonic() - began)))
