"""Ending what is left of an attempt on this node."""

from typing import Any

import pytest

from jobs.runner.nodes import orphans


class Process:
    """One that goes half a second after it was killed; it ignores SIGTERM."""

    def __init__(self, pid: int, now: list[float]) -> None:
        self.pid = pid
        self._now, self._gone_at = now, float("inf")

    def cmdline(self) -> list[str]:
        return [f"process-{self.pid}"]

    def terminate(self) -> None:
        """Nothing happens."""

    def kill(self) -> None:
        self._gone_at = min(self._gone_at, self._now[0] + 0.5)

    @property
    def is_there(self) -> bool:
        return self._now[0] < self._gone_at


def test_what_starts_while_the_others_are_killed_is_killed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """As under nsys, which starts its worker some time after it was asked to."""
    now = [0.0]
    first, late = Process(1, now), Process(2, now)
    starts_at = orphans.TERM_SECONDS + 0.2

    def look() -> list[Any]:
        return [p for p in (first, late) if p.is_there and (p is first or now[0] >= starts_at)]

    def wait(_processes: Any, timeout: float) -> None:
        now[0] += timeout

    monkeypatch.setattr(orphans.psutil, "wait_procs", wait)
    ended: list[str] = []

    left = orphans._end(look, 0.0, lambda: now[0], ended)

    assert left == []
    assert ended == ["1 process-1"]
