"""The process that imports: how it shares the CPUs."""

import os
import subprocess
import sys

OURS = os.getpriority(os.PRIO_PROCESS, 0)
PROGRAM = """
import os, subprocess, sys, threading
from profiling.trace.importing import step_back_after

child = subprocess.Popen(["sleep", "60"])
over = threading.Event()
thread = threading.Thread(target=over.wait)
thread.start()
step_back_after(0)
for timer in threading.enumerate():
    if isinstance(timer, threading.Timer):
        timer.join()
print(*(os.getpriority(os.PRIO_PROCESS, number) for number in (os.getpid(), thread.native_id, child.pid)))
over.set()
child.kill()
child.wait()
"""


def said(*, is_leader: bool) -> list[int]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, start_new_session=is_leader
    )
    return [int(word) for word in done.stdout.split()]


def test_a_long_import_gives_way_with_its_threads_and_what_it_has_started() -> None:
    assert said(is_leader=True) == [min(OURS + 5, 19)] * 3


def test_who_shares_a_group_is_left_alone() -> None:
    assert said(is_leader=False) == [OURS] * 3
