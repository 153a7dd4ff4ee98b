"""Whose CPU time it is: the run's, by its mark, with that of children that have ended; nobody else's."""

import os
import subprocess
import sys

from jobs.runner.nodes.cpu_time import RunCpuTime

BURN = "import time; end = time.process_time() + 0.2\nwhile time.process_time() < end: pass\n"
PARENT = f"""
import subprocess, sys
sys.stdin.readline()
subprocess.run([sys.executable, "-c", {BURN!r}], check=True)
print("burnt", flush=True)
sys.stdin.readline()
"""


def test_only_the_runs_own_processes_count_and_a_child_that_ended_still_does() -> None:
    now = [0.0]
    argv = [sys.executable, "-c", PARENT]
    marked = {**os.environ, "PITWALL_RUN": "r-own"}
    with subprocess.Popen(argv, env=marked, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdin is not None
        assert run.stdout is not None
        own, other = (RunCpuTime(run=name, clock=lambda: now[0]) for name in ("r-own", "r-other"))
        run.stdin.write("\n")
        run.stdin.flush()
        assert run.stdout.readline() == "burnt\n"
        now[0] = 1.0
        cores, others = own.cores(), other.cores()
        run.stdin.write("\n")

    assert 0.2 <= cores < 2.0  # of one second by this clock
    assert others == 0
