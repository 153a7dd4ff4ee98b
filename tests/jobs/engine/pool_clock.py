"""A clock for pools of reward processes: no test waits for a time limit, and none is out of time on a busy machine."""

import time
from collections.abc import Callable

import pytest

from jobs.engine.rollouts import reward_pool


class Clock:
    """The pool's clock, which can be put forward: what is under way then has taken too long, on any machine."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._seconds = 0.0
        monkeypatch.setattr(reward_pool, "time", self)

    def monotonic(self) -> float:
        return time.monotonic() + self._seconds

    def pass_once(self, is_time: Callable[[], bool], *, seconds: float = 86400.0) -> Callable[[], None]:
        """Return a check that lets so many seconds pass as soon as it is time; once."""

        def check() -> None:
            if not self._seconds and is_time():
                self._seconds = seconds

        return check
