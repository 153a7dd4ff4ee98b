"""Run a command that leaves its process group (Ray) and let nothing of it survive: not us, not the supervisor's death.

`python -m console.embedded.guard GRACE_SECONDS COMMAND...`: the supervisor starts it with a parent-death SIGTERM.
Every orphan below becomes our child; when the command or the supervisor ends, what is left is killed.
"""

import os
import signal
import subprocess
import sys
import time
from types import FrameType

from console.embedded.process_tree import adopt_orphans, die_with_parent, kill_descendants

ORPHANED_GRACE_SECONDS = 1.0  # when the supervisor was killed nobody waits for a polite end


def run(argv: list[str], *, grace_seconds: float) -> int:
    """Run `argv` until it ends or we are told to; return its exit code (128 + signal if it was killed)."""
    parent = os.getppid()
    adopt_orphans()
    told_to_stop = False

    def note(_number: int, _frame: FrameType | None) -> None:
        nonlocal told_to_stop
        told_to_stop = True

    signal.signal(signal.SIGTERM, note)
    signal.signal(signal.SIGINT, note)
    me = os.getpid()
    child = subprocess.Popen(argv, preexec_fn=lambda: die_with_parent(signal.SIGTERM, me))
    deadline = float("inf")
    while child.poll() is None:
        if os.getppid() != parent and deadline == float("inf"):
            told_to_stop, grace_seconds = True, ORPHANED_GRACE_SECONDS
        if told_to_stop and deadline == float("inf"):
            deadline = time.monotonic() + grace_seconds
            child.terminate()
        if time.monotonic() > deadline:
            child.kill()
        reap_orphans(child.pid)
        time.sleep(0.1)
    left = kill_descendants()
    if left:
        print(f"could not end processes {left}", file=sys.stderr, flush=True)
        return 1
    return child.returncode if child.returncode >= 0 else 128 - child.returncode


def reap_orphans(child: int) -> None:
    """Collect what was adopted and has ended; `child` is left to its owner. Else ended orphans pile up for days."""
    while True:
        try:
            exited = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if exited is None or exited.si_pid == child:
            return
        os.waitpid(exited.si_pid, 0)


if __name__ == "__main__":
    sys.exit(run(sys.argv[2:], grace_seconds=float(sys.argv[1])))
