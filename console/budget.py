"""Expensive questions: each person has a few at once, a few more wait for a moment, the rest are asked to come again.

A person has one budget in this web process, however they ask: by pages, by session or by any of their tokens. So a
flood of one leaves the others' places free.
"""

import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from django.conf import settings
from django.http import HttpRequest, StreamingHttpResponse
from django.utils.translation import gettext as _

from profiling.counted import counted

P = ParamSpec("P")
T = TypeVar("T")

MOST_WAITING = 8
"""Questions of one person that wait for a place; each holds a thread."""
PATIENCE_SECONDS = 10.0
RETRY_SECONDS = 5
"""What `Retry-After` says."""


class TooManyQuestions(Exception):
    """The person has as many expensive questions under way as they may; the text says to ask again."""


@dataclass(slots=True)
class _Count:
    under_way: int = 0
    waiting: int = 0


class QuestionPlaces:
    """Places by person. Thread-safe."""

    def __init__(self, *, patience: float = PATIENCE_SECONDS) -> None:
        self._patience = patience  # seconds that a question waits for a place
        self._counts: dict[object, _Count] = {}
        self._changed = threading.Condition()

    def enter(self, person: object) -> Callable[[], None]:
        """Take a place of a person's, and return what gives it back, which may be called more than once.

        Raises: TooManyQuestions at once where many wait already, else after waiting.
        """
        most = settings.QUESTIONS_AT_ONCE
        with self._changed:
            count = self._counts.setdefault(person, _Count())
            if count.under_way >= most:
                if count.waiting >= MOST_WAITING:
                    raise _refusal(most)
                count.waiting += 1
                is_free = self._changed.wait_for(lambda: count.under_way < most, self._patience)
                count.waiting -= 1
                if not is_free:
                    raise _refusal(most)
            count.under_way += 1
        return _once(lambda: self._leave(person))

    def under_way(self, person: object) -> int:
        """Return how many questions of a person are being answered."""
        with self._changed:
            return self._counts.get(person, _Count()).under_way

    def _leave(self, person: object) -> None:
        with self._changed:
            count = self._counts[person]
            count.under_way -= 1
            if not count.under_way and not count.waiting:
                del self._counts[person]
            self._changed.notify_all()


_budget = QuestionPlaces()


def budget() -> QuestionPlaces:
    """Return the budget of this process."""
    return _budget


def expensive(view: Callable[Concatenate[HttpRequest, P], T]) -> Callable[Concatenate[HttpRequest, P], T]:
    """Let a view, or an operation of the API, answer only so many questions of one person at once.

    It raises TooManyQuestions, which pages and API answer with 429. What is answered as a stream counts until it is
    sent, or nobody reads it any more.
    """

    @wraps(view)
    def limited(request: HttpRequest, *args: P.args, **kwargs: P.kwargs) -> T:
        leave = budget().enter(request.user.pk)
        try:
            answer = view(request, *args, **kwargs)
        except BaseException:
            leave()
            raise
        if isinstance(answer, StreamingHttpResponse):
            _leave_when_sent(answer, leave)
        else:
            leave()
        return answer

    return limited  # type: ignore[return-value]  # the same, but for the name of its first argument


def _leave_when_sent(answer: StreamingHttpResponse, leave: Callable[[], None]) -> None:
    """Give the place back when the answer is closed; or forgotten, as where the client has gone."""
    answer._resource_closers.append(leave)  # type: ignore[attr-defined]  # what Django itself closes goes there
    weakref.finalize(answer, leave)


def _once(act: Callable[[], None]) -> Callable[[], None]:
    lock = threading.Lock()

    def acted() -> None:
        if lock.acquire(blocking=False):  # never given back: the first call is the only one
            act()

    return acted


def _refusal(most: int) -> TooManyQuestions:
    text = _("You have %(n)s expensive questions under way, the most at once. Try again in %(s)s seconds.")
    return TooManyQuestions(counted(text % {"n": most, "s": RETRY_SECONDS}))
