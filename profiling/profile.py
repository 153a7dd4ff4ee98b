"""The facade that training code sees: `mark` a stretch of work; `drain` hands over what was marked since.

A mark never changes what it wraps: the body runs exactly once, its exception passes through, and the span is closed
either way. Marks nest, on any thread. Phases (depth 0) are always recorded, for a few µs each. What marks do
besides is one switch, `configure`, set once per process; no backend is named anywhere else. A backend that raises is
switched off with one line in the log. Backends are the files of profiling/profilers/.
"""

import sys
import threading
import time
from collections import deque
from types import TracebackType
from typing import Any, NamedTuple

from profiling.config import Marks
from profiling.memory_marks import MarkMemory, MemoryMarks
from profiling.process_memory import DeviceMemory
from profiling.profilers.profiler import Profiler, load_profiler


class Span(NamedTuple):
    """One marked stretch: `start` in Unix ns, `duration` in ns; `phase` is a key of profiling.phases.

    `memory` is there where the backend `timers` is on.
    """

    phase: str
    step: int
    start: int
    duration: int
    depth: int
    name: str
    memory: MarkMemory | None = None


_spans: deque[Span] = deque()  # appended to without a lock: a deque loses nothing to threads
_lock = threading.Lock()
_local = threading.local()
_backends: tuple[Profiler, ...] = ()
_records_details = True
_is_off = False  # nothing happens inside phases
_new_span = tuple.__new__  # a named tuple's own way takes three times as long


class Mark:
    """The context manager that `mark` returns; `seconds` is the length of the stretch once it is closed."""

    __slots__ = ("_begin", "_depth", "_name", "_outer", "_phase", "_start", "_step", "_tokens", "seconds")

    def __init__(self, phase: str, step: int, name: str) -> None:
        self._phase, self._step, self._name = phase, step, name
        self.seconds = 0.0

    def __enter__(self) -> "Mark":
        self._outer = outer = getattr(_local, "mark", None)
        if outer is None:
            self._depth = 0
        else:
            self._depth = outer._depth + 1
            if self._step < 0:
                self._step = outer._step
        _local.mark = self
        self._tokens = _open(self._phase, self._step, self._name) if _backends else ()
        self._start, self._begin = time.time_ns(), time.perf_counter_ns()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        duration = time.perf_counter_ns() - self._begin
        _local.mark = self._outer
        memory = _close(self._tokens) if self._tokens else None
        self.seconds = duration / 1e9
        if _records_details or not self._depth:
            row = (self._phase, self._step, self._start, duration, self._depth, self._name, memory)
            _spans.append(_new_span(Span, row))


class _NoMark(Mark):
    """A detail while marks are off: one object for all, which keeps nothing."""

    __slots__ = ()

    def __enter__(self) -> Mark:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None


_NO_MARK = _NoMark("", -1, "")


def mark(phase: str, *, step: int = -1, name: str = "") -> Mark:
    """Return a context manager, to be entered at once, that records its body as a span of `phase`.

    `name` tells details apart. Inside another mark of the same thread the span's depth is one more, and its step the
    same unless it has its own. With marks off a detail is not measured and its `seconds` stay 0.
    """
    if _is_off and getattr(_local, "mark", None) is not None:
        return _NO_MARK
    return Mark(phase, step, name)


def drain() -> list[Span]:
    """Return the spans closed since the last call, oldest first, and forget them."""
    taken: list[Span] = []
    for _ in range(len(_spans)):
        try:
            taken.append(_spans.popleft())
        except IndexError:  # another thread drains too
            break
    return taken


# -- the switch --


def configure(marks: Marks, *, device: DeviceMemory | None = None) -> tuple[str, ...]:
    """Set what marks do in this process; return the names of the backends that are on.

    `auto` is `timers`, and `nvtx` besides where nsys has entered the process. `device` tells the backends that measure
    memory what the process holds on its device. A backend that does not work here is left out, with a line that says
    why.
    """
    from profiling.profilers import nvtx

    names: tuple[str, ...] = ("timers", *(["nvtx"] if nvtx.has_listener() else [])) if marks == "auto" else (marks,)
    MemoryMarks.device = device
    chosen = []
    for name in names:
        backend = load_profiler(name)
        if problem := backend.problem():
            _say(f"Marks of the backend {name} are off. {problem}")
        else:
            chosen.append(backend)
    _set(tuple(chosen), records_details=any(backend.records_details for backend in chosen))
    return tuple(backend.name for backend in chosen)


def attach(name: str) -> bool:
    """Switch a backend on for the time of a recording; False if it was on before."""
    if any(backend.name == name for backend in _backends):
        return False
    _set((*_backends, load_profiler(name)), records_details=_records_details)
    return True


def detach(name: str) -> None:
    """Switch a backend off that `attach` has switched on. Marks that are open still close in it."""
    _set(tuple(b for b in _backends if b.name != name), records_details=_records_details)


def _set(backends: tuple[Profiler, ...], *, records_details: bool) -> None:
    global _backends, _is_off, _records_details
    with _lock:
        _backends = tuple(backend for backend in backends if backend.name != "none")
        _records_details = records_details
        _is_off = not _backends and not records_details


def _open(phase: str, step: int, name: str) -> tuple[tuple[Profiler, Any], ...]:
    tokens = []
    for backend in _backends:
        try:
            tokens.append((backend, backend.begin(phase, step, name)))
        except Exception as error:  # whatever a backend does, training goes on
            _switch_off(backend, error)
    return tuple(tokens)


def _close(tokens: tuple[tuple[Profiler, Any], ...]) -> MarkMemory | None:
    memory = None
    for backend, token in reversed(tokens):
        try:
            memory = backend.end(token) or memory
        except Exception as error:  # as above
            _switch_off(backend, error)
    return memory


def _switch_off(backend: Profiler, error: Exception) -> None:
    if backend in _backends:
        _set(tuple(b for b in _backends if b is not backend), records_details=_records_details)
        _say(f"Marks of the backend {backend.name} are off from here on: {type(error).__name__}: {error}")


def _say(text: str) -> None:
    """Into the log of the process, which people can read on the run's page."""
    try:
        print(text, file=sys.stderr, flush=True)
    except (OSError, ValueError):
        return  # a log that is closed or full is no reason to stop training
