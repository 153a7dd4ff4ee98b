"""What the supervisor needs to know of one service: how to start it, when it is ready, how to end it."""

import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


def always_ready() -> bool:
    """Answer yes: for services that nothing waits for."""
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """One supervised process.

    `needs`: services that must be ready before it starts. `is_once`: it does one thing and is not started again.
    `is_independent`: it may start before the database is prepared. `is_quiet`: its log goes to its file alone.
    `grace_seconds`: from SIGTERM to SIGKILL at the end. `death_signal`: what the kernel sends it when the supervisor
    dies; SIGTERM only for one that cleans up after itself.
    """

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    needs: tuple[str, ...] = ()
    is_once: bool = False
    is_independent: bool = False
    is_quiet: bool = False
    is_ready: Callable[[], bool] = field(default=always_ready)
    grace_seconds: float = 5.0
    death_signal: int = signal.SIGKILL
