"""Wait for what can only be asked for: another process's files, Ray's Job API, a console's database."""

import time
from collections.abc import Callable
from typing import Any


def wait_until(condition: Callable[[], Any], seconds: float) -> None:
    """Ask until it is so; fails after `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"it was not so within {seconds} s"
        time.sleep(0.05)
