"""Wait for what can only be asked for: another process's files, Ray's Job API, a console's database."""

import time
from collections.abc import Callable
from typing import Any

SHORTEST_SECONDS, LONGEST_SECONDS = 0.05, 0.5
PATIENCE = 4  # times what a test allows: a machine may be that much slower than the one it was written on
ACTION_MS = 120_000  # for what a browser does on a page, on a machine with other work
SHARE = 4  # of the time that is waited, at most a fifth is spent with asking: what is waited for needs the CPU


def wait_until(is_true: Callable[[], Any], seconds: float, what: str | Callable[[], str] = "it was not so") -> Any:
    """Ask until the answer is true, and return it; fails with `what`, "web did not start", when it has taken far longer
    than the `seconds` that it should take.
    """
    begin = time.monotonic()
    deadline = begin + PATIENCE * seconds
    while True:
        asked = time.monotonic()
        is_last = asked > deadline  # asked once more: who was put aside himself has not waited in vain
        if found := is_true():
            return found
        if is_last:
            raise AssertionError(f"{what if isinstance(what, str) else what()} within {asked - begin:.0f} s")
        time.sleep(min(max(SHORTEST_SECONDS, SHARE * (time.monotonic() - asked)), LONGEST_SECONDS))
