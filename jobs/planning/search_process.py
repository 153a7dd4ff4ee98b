"""`python -m jobs.planning.search_process FD`: answers questions that come through a pipe, one after the other.

A question is a pickled (seconds, function, arguments, keywords) of the web process that started it, each argument
pickled by itself; an answer is one of ("answer", value), ("invalid", field, sentence) or ("failed", traceback). It ends
with the pipe.
"""

import os
import pickle
import signal
import sys
import traceback
from functools import lru_cache
from multiprocessing.connection import Connection

from jobs.catalog.sentence import sentence_of
from jobs.planner.result import JobInvalid

NICENESS = 10
"""Behind the web process, which has the others to answer."""
IDLE_SECONDS = 600.0
"""After which a process that nobody asks ends, and gives its memory back."""

_loaded = lru_cache(maxsize=64)(pickle.loads)
"""An argument that came before is the same object again: what the planner keeps of a model is found at first sight,
instead of by comparing all its layers, which took a third of the time of an answer. Nothing changes an argument."""


def serve(connection: Connection) -> None:
    """Answer until the other end is closed, or nobody asks any more."""
    while connection.poll(IDLE_SECONDS):
        try:
            seconds, function, args, kwargs = connection.recv()
        except EOFError:
            return
        signal.alarm(seconds)  # whoever asked has given up by then, or is gone
        try:
            named = {name: _loaded(value) for name, value in kwargs.items()}
            answer: tuple[object, ...] = ("answer", function(*map(_loaded, args), **named))
        except JobInvalid as invalid:
            answer = ("invalid", invalid.field, sentence_of(invalid))
        except Exception:
            answer = ("failed", traceback.format_exc())
        signal.alarm(0)
        try:
            connection.send(answer)
        except BrokenPipeError:
            return


def main() -> None:
    """Serve the pipe whose file descriptor the command line names."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal reaches all; the pipe says when it is over
    os.nice(NICENESS)
    serve(Connection(int(sys.argv[1])))


if __name__ == "__main__":
    main()
