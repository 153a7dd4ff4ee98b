"""Wait for what can only be asked for: another process's files, Ray's Job API, a console's database."""

import time
from collections.abc import Callable
from typing import Any


def wait_until(is_true: Callable[[], Any], seconds: float, what: str | Callable[[], str] = "it was not so") -> Any:
    """Ask until the answer is true, and return it; fails after `seconds` with `what`: "web did not start"."""
    deadline = time.monotonic() + seconds
    while not (found := is_true()):
        if time.monotonic() > deadline:
            raise AssertionError(f"{what if isinstance(what, str) else what()} within {seconds:.0f} s")
        time.sleep(0.05)
    return found
