"""The planner's long searches, in a few processes of their own: pure Python would hold the interpreter that serves all.

    layouts = answer_apart(search, spec, models, fleet, goal="time")

What is asked is pure arithmetic on values, so an answer is kept for whoever asks the same in the next minutes.
"""

import logging
import os
import pickle
import queue
import subprocess
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from hashlib import sha256
from multiprocessing import Pipe
from typing import ParamSpec, Protocol, TypeVar

from django.conf import settings
from django.utils.translation import gettext as _

from jobs.planner.result import JobInvalid

log = logging.getLogger(__name__)
P = ParamSpec("P")
T = TypeVar("T")


class PlannerCall(Protocol):
    """A way to call a function of the planner: in a process of its own (answer_apart), or here."""

    def __call__(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return what the function returns."""


SECONDS = 60
"""That one answer may take."""
PATIENCE_SECONDS = 60.0
"""That a question waits for a process."""
KEPT_SECONDS = 300.0
MOST_KEPT = 256
_ENVIRONMENT = ("PATH", "HOME", "LANG", "LC_ALL", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE")


class _Searcher:
    """One process, and our end of the pipe to it."""

    def __init__(self) -> None:
        self._pipe, theirs = Pipe()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "jobs.planning.search_process", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                cwd=settings.BASE_DIR,
                env={name: os.environ[name] for name in _ENVIRONMENT if name in os.environ},  # no secret
            )

    def ask(self, question: bytes, seconds: float) -> tuple[object, ...] | None:
        """Return its answer, None if there is none after so many seconds. Raises: OSError, EOFError if it is gone."""
        self._pipe.send_bytes(question)
        return self._pipe.recv() if self._pipe.poll(seconds) else None

    def end(self) -> None:
        """Kill it."""
        self._pipe.close()
        self._process.kill()
        self._process.wait()


class SearchPool:
    """Up to so many processes, each started when it is first needed; and what they answered lately. Thread-safe."""

    def __init__(self, num_processes: int, *, seconds: int = SECONDS) -> None:
        self._seconds = seconds
        self._places: queue.LifoQueue[_Searcher | None] = queue.LifoQueue()  # the last one used is warm
        for _place in range(num_processes):
            self._places.put(None)
        self._num_processes = num_processes
        self._kept: OrderedDict[bytes, tuple[float, object]] = OrderedDict()
        self._lock = threading.Lock()

    def answer(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return what the function returns. Raises: JobInvalid, also for a search that takes too long."""
        question = _encoded(self._seconds + 1, function, *args, **kwargs)
        key = sha256(question).digest()
        with self._lock:
            said_at, earlier = self._kept.get(key, (0.0, None))
        if said_at and time.monotonic() - said_at < KEPT_SECONDS:
            return earlier  # type: ignore[return-value]  # it is what this function has answered
        answer: T = self._asked(question) if self._num_processes else function(*args, **kwargs)  # type: ignore[assignment]
        with self._lock:
            self._kept[key] = time.monotonic(), answer
            self._kept.move_to_end(key)
            while len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
        return answer

    def close(self) -> None:
        """End the processes that nobody asks just now; the others end with this process."""
        for _place in range(self._num_processes):
            try:
                searcher = self._places.get_nowait()
            except queue.Empty:
                return
            if searcher is not None:
                searcher.end()

    def _asked(self, question: bytes) -> object:
        try:
            searcher = self._places.get(timeout=PATIENCE_SECONDS)
        except queue.Empty:
            raise _too_long() from None
        try:
            searcher, answer = self._tried(searcher, question)
        except BaseException:
            self._places.put(None)
            raise
        self._places.put(searcher)
        if answer is None:
            raise _too_long()
        if answer[0] == "invalid":
            raise JobInvalid(str(answer[1]), answer[2])  # type: ignore[arg-type]  # a Sentence stays one
        if answer[0] == "failed":
            raise RuntimeError(answer[1])
        return answer[1]

    def _tried(self, searcher: _Searcher | None, question: bytes) -> tuple[_Searcher | None, tuple[object, ...] | None]:
        """Return the answer and who gave it: another process where this one is gone, as after a long rest."""
        if searcher is not None:
            try:
                return self._ask(searcher, question)
            except (OSError, EOFError):
                log.info("A search process had ended; another one starts.")
        return self._ask(_Searcher(), question)

    def _ask(self, searcher: _Searcher, question: bytes) -> tuple[_Searcher | None, tuple[object, ...] | None]:
        try:
            answer = searcher.ask(question, self._seconds)
        except BaseException:
            searcher.end()
            raise
        if answer is None:
            searcher.end()
            return None, None
        return searcher, answer


def _encoded(seconds: int, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> bytes:
    """Return a question as jobs.planning.search_process reads it."""
    named = {name: pickle.dumps(value) for name, value in kwargs.items()}
    return pickle.dumps((seconds, function, [pickle.dumps(value) for value in args], named))


def _too_long() -> JobInvalid:
    return JobInvalid("", _("The search took too long and was ended. Ask for fewer devices or options."))


_pool: SearchPool | None = None
_pool_lock = threading.Lock()


def pool() -> SearchPool:
    """Return the pool of this process; nothing starts before the first question."""
    global _pool
    with _pool_lock:
        if _pool is None:
            _pool = SearchPool(settings.PLANNER_PROCESSES)
        return _pool


def answer_apart(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return what a function of the planner returns, computed in another process. Raises: JobInvalid."""
    return pool().answer(function, *args, **kwargs)
