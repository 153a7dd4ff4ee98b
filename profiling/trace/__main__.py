"""`python -m profiling.trace FILE STORE`: import one file in a process of its own, and tell how it goes.

Standard output is one JSON object a line: {"progress": 0.4} now and then, and last {"facts": {...}} or
{"problem": "a sentence"}. The process ends itself when its standard input is closed: then nobody listens any more.
"""

import argparse
import contextlib
import json
import os
import resource
import signal
import sys
import threading
import time
from dataclasses import asdict
from pathlib import Path

from profiling.trace.importing import import_trace, reader_of
from profiling.trace.limits import Unreadable

_EVERY_SECONDS = 0.25
_MOST_MEMORY = 4 << 30
"""Ten times what an import takes; a file that makes a reader ask for more is refused."""
_PATIENT_SECONDS = 20.0
"""So long an import takes its share of the CPUs: whoever has ended a recording waits for it."""


def main() -> None:
    """Import, and say what came of it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--name", default="")
    parser.add_argument("--most-bytes", type=int, default=0)
    given = parser.parse_args()
    threading.Thread(target=_end_with_the_caller, daemon=True).start()
    step_back_after(_PATIENT_SECONDS)
    _limit(resource.RLIMIT_DATA, _MOST_MEMORY)
    with contextlib.suppress(OSError):  # where the system is short of memory, this process goes before the console
        Path("/proc/self/oom_score_adj").write_text("1000")
    if given.most_bytes > 0:
        _limit(resource.RLIMIT_FSIZE, given.most_bytes)
    told_at = 0.0

    def progress(share: float) -> None:
        nonlocal told_at
        if time.monotonic() - told_at >= _EVERY_SECONDS:
            told_at = time.monotonic()
            _say({"progress": round(share, 4)})

    try:
        kind = reader_of(given.source).name
        facts = import_trace(given.source, given.target, progress=progress)
    except Unreadable as error:
        _say({"problem": str(error)})
    except MemoryError:
        _say({"problem": f"{given.name} needs more memory than the console has. Record fewer steps or fewer ranks."})
    except OSError as error:
        _say({"problem": f"{given.name} cannot be imported: {error.strerror or error}."})
    else:
        _say({"facts": {**asdict(facts), "kind": kind}})


def step_back_after(seconds: float) -> None:
    """Give way to the console and to training from then on: a large import may take minutes, and nobody waits so long.

    It holds for the exporter of nsys, too, and for all threads; only for a process that leads its group.
    """
    if os.getpgrp() != os.getpid():
        return
    niceness = os.getpriority(os.PRIO_PGRP, 0) + 5
    timer = threading.Timer(seconds, os.setpriority, (os.PRIO_PGRP, 0, niceness))
    timer.daemon = True
    timer.start()


def _limit(what: int, most: int) -> None:
    _, hard = resource.getrlimit(what)
    resource.setrlimit(what, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def _say(said: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(said) + "\n")
    sys.stdout.flush()


def _end_with_the_caller() -> None:
    while os.read(0, 1 << 16):  # not sys.stdin: its lock, held by a thread, ends the interpreter with a fatal error
        pass
    if os.getpgrp() == os.getpid():  # with whatever we have started
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(1)


if __name__ == "__main__":
    main()
