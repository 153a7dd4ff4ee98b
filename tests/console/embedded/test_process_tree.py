"""Who is whose descendant, while processes come and go."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from console.embedded.process_tree import descendants, parent_of

# Forks short-lived children as fast as it can, as a service does while it starts.
BUSY = "import os\nwhile True:\n    pid = os.fork()\n    if not pid: os._exit(0)\n    os.waitpid(pid, 0)\n"


@pytest.fixture
def busy() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", BUSY])
    yield process
    process.kill()
    process.wait()


def test_what_is_below_a_spared_process_is_spared_while_it_is_being_forked(busy: subprocess.Popen[bytes]) -> None:
    for _ in range(100):  # others of this process may come and go meanwhile
        found = descendants(os.getpid(), spare=frozenset({busy.pid}))
        assert busy.pid not in found
        assert [pid for pid in found if parent_of(pid) == busy.pid] == []


def test_a_process_that_has_ended_is_nobodys_child(busy: subprocess.Popen[bytes]) -> None:
    assert parent_of(busy.pid) == os.getpid()
    busy.kill()
    os.waitid(os.P_PID, busy.pid, os.WEXITED | os.WNOWAIT)
    assert parent_of(busy.pid) is None
