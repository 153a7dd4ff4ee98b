"""Tell the console the outcome of a short job, for as long as it is away."""

import sys
import time
from collections.abc import Callable

from jobs.runner.console_client.backoff import Backoff
from jobs.runner.console_client.console import ConsoleError, ConsoleUnreachable


def deliver(send: Callable[[], None], *, seconds: float) -> int:
    """Call `send` until the console takes what it sends, for at most so long; return the exit code of the job."""
    backoff, deadline = Backoff(), time.monotonic() + seconds
    while True:
        try:
            send()
            return 0
        except ConsoleUnreachable as error:
            if time.monotonic() > deadline:
                print(error, file=sys.stderr)
                return 1
            time.sleep(backoff.wait_seconds())
        except ConsoleError as error:
            print(error, file=sys.stderr)
            return 1
