"""A circuit breaker: what keeps failing is left alone for a while, then asked once."""

import time
from collections.abc import Callable


class CircuitBreaker:
    """Closed, it lets calls through. After `failures` in a row it opens for `seconds`; then one call is let through.

    That probe closes it when it succeeds, and opens it for as long again when it fails. With 0 failures it never opens.
    """

    def __init__(self, *, failures: int, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._most, self._seconds, self._clock = failures, seconds, clock
        self._num_failed = 0
        self._opened: float | None = None
        self._is_probed = False

    @property
    def is_open(self) -> bool:
        """True from the failure that opened it to the success that closes it."""
        return self._opened is not None

    def lets_through(self) -> bool:
        """Return whether a call may be made now; one that may has to be followed by `succeeded` or `failed`."""
        if self._opened is None:
            return True
        if self._is_probed or self._clock() < self._opened + self._seconds:
            return False
        self._is_probed = True
        return True

    def succeeded(self) -> None:
        """A call was answered."""
        self._num_failed, self._opened, self._is_probed = 0, None, False

    def failed(self) -> None:
        """A call was not answered."""
        self._num_failed += 1
        if self._is_probed or (self._most and self._num_failed >= self._most):
            self._opened, self._is_probed = self._clock(), False
