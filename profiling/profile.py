"""The facade that training code sees: `mark` a stretch of work; `drain` hands over what was marked since.

A mark never changes what it wraps: the body runs exactly once, its exception passes through, and the span is closed
either way. Marks nest (`depth`), on any thread. One mark costs a few microseconds; no backend is named here.
"""

import threading
import time
from dataclasses import dataclass
from types import TracebackType


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One marked stretch: `start` in Unix ns, `duration` in ns; `phase` is a key of profiling.phases."""

    phase: str
    step: int
    start: int
    duration: int
    depth: int
    name: str


_spans: list[Span] = []
_lock = threading.Lock()
_local = threading.local()


class Mark:
    """The context manager that `mark` returns; `seconds` is the length of the stretch once it is closed."""

    __slots__ = ("_begin", "_depth", "_name", "_phase", "_start", "_step", "seconds")

    def __init__(self, phase: str, step: int, name: str) -> None:
        self._phase, self._step, self._name = phase, step, name
        self.seconds = 0.0

    def __enter__(self) -> "Mark":
        self._depth = getattr(_local, "depth", 0)
        _local.depth = self._depth + 1
        self._start, self._begin = time.time_ns(), time.perf_counter_ns()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        duration = time.perf_counter_ns() - self._begin
        _local.depth = self._depth
        self.seconds = duration / 1e9
        span = Span(
            phase=self._phase, step=self._step, start=self._start, duration=duration, depth=self._depth, name=self._name
        )
        with _lock:
            _spans.append(span)


def mark(phase: str, *, step: int = -1, name: str = "") -> Mark:
    """Return a context manager that records its body as a span of `phase`; `name` tells details apart.

    Inside another mark of the same thread the span's depth is one more.
    """
    return Mark(phase, step, name)


def drain() -> list[Span]:
    """Return the spans closed since the last call, oldest first, and forget them."""
    with _lock:
        taken = _spans[:]
        _spans.clear()
    return taken
