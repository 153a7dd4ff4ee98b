"""The reconciler by a clock that a test moves."""

from datetime import datetime, timedelta

from jobs.processes.reconcile import ReconcilerState, reconcile
from tests.rows import NOW


class Clock:
    """Steps of the reconciler at chosen moments."""

    def __init__(self) -> None:
        self.now: datetime = NOW
        self.memory = ReconcilerState()

    def step(self, seconds: float = 0) -> None:
        self.now += timedelta(seconds=seconds)
        reconcile(now=self.now, memory=self.memory)
