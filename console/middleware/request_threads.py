"""Threads that answer requests, one after the other, and live on with their connection to the database.

Django gives each request a thread that ends with it, so that each one logs in to PostgreSQL, or opens SQLite's file and
sets it up, before it asks anything.
"""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from django.db import connections

MOST_IDLE = 4
"""Threads that wait for requests; each holds a connection."""


class RequestThread(ThreadPoolExecutor):
    """One thread, which knows whether it has something to do."""

    def __init__(self) -> None:
        super().__init__(max_workers=1, thread_name_prefix="request")
        self._num_calls = 0
        self._lock = threading.Lock()

    @property
    def is_idle(self) -> bool:
        """Whether nothing runs in it, or waits to."""
        return self._num_calls == 0

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Have it call the function after all that it was asked before."""
        with self._lock:
            self._num_calls += 1
        future = super().submit(function, *args, **kwargs)
        future.add_done_callback(self._note_end)
        return future

    def end(self) -> None:
        """Let it end after what it does, and close its connection; nobody waits for it."""
        super().submit(connections.close_all)
        self.shutdown(wait=False)

    def _note_end(self, _: Future[Any]) -> None:
        with self._lock:
            self._num_calls -= 1


class RequestThreads:
    """Lends each request a thread that nobody else has. For one event loop."""

    def __init__(self) -> None:
        self._idle: list[RequestThread] = []

    @contextmanager
    def lent(self) -> Iterator[RequestThread]:
        """Lend one. One that still works for a request that was canceled is not lent again."""
        thread = self._idle.pop() if self._idle else RequestThread()
        try:
            yield thread
        finally:
            if thread.is_idle and len(self._idle) < MOST_IDLE:
                self._idle.append(thread)
            else:
                thread.end()
