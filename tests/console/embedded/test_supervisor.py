"""The supervisor, on small stand-in services: order, restarts, orderly and disorderly ends."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from console.embedded.child import Child
from console.embedded.process_tree import descendants, parent_of
from console.embedded.service import Service

# A service that starts a grandchild in a group of its own, as Ray does, and says both process ids.
SPAWNER = """
import os, subprocess, sys, time
grandchild = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
open(sys.argv[1], "a").write(f"{os.getpid()} {grandchild.pid}\\n")
time.sleep(600)
"""
# A supervisor in a process of its own, so that signals and parent-death can be tried on it.
PROGRAM = """
import sys
from pathlib import Path
from console.embedded.service import Service
from console.embedded.supervisor import Supervisor
import os, signal
folder = Path(sys.argv[1])
env = dict(os.environ)
spawner = (sys.executable, str(folder / "spawner.py"))
guarded = (sys.executable, "-m", "console.embedded.guard", "1", *spawner)
services = [
    Service(name="first", argv=(*spawner, str(folder / "first")), env=env, is_ready=(folder / "first").exists),
    Service(name="second", argv=(*spawner, str(folder / "second")), env=env, needs=("first",)),
    Service(name="guarded", argv=(*guarded, str(folder / "guarded")), env=env, death_signal=signal.SIGTERM),
    Service(name="once", argv=(sys.executable, "-c", "print('once only')"), env=env, is_once=True),
]
supervisor = Supervisor(services, stop_order=("once", "second", "first", "guarded"), log_dir=folder / "log",
                        write=lambda text: (sys.stdout.write(text), sys.stdout.flush()), is_colored=False)
sys.exit(supervisor.run(before_stop=lambda: print("runs are ended", flush=True)))
"""


def wait_for(condition: Callable[[], bool], *, seconds: float = 240.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.02)


def is_alive(pid: int) -> bool:
    return parent_of(pid) is not None


def pids(path: Path) -> list[int]:
    """Return the process ids of the last start that a spawner wrote down, its own first."""
    return [int(word) for word in path.read_text().splitlines()[-1].split()]


def num_starts(path: Path) -> int:
    return len(path.read_text().splitlines()) if path.exists() else 0


@pytest.fixture
def supervised(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    (tmp_path / "spawner.py").write_text(SPAWNER)
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(PROGRAM), str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    try:
        wait_for(lambda: all(num_starts(tmp_path / name) for name in ("first", "second", "guarded")))
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def everything(folder: Path) -> list[int]:
    return [pid for name in ("first", "second", "guarded") for pid in pids(folder / name)]


def test_ctrl_c_ends_everything_and_exits_with_zero(supervised: subprocess.Popen[str], tmp_path: Path) -> None:
    running = everything(tmp_path)
    assert all(map(is_alive, running))

    supervised.send_signal(signal.SIGINT)
    output, _ = supervised.communicate(timeout=240)

    assert supervised.returncode == 0
    assert "runs are ended" in output
    assert not [pid for pid in running if is_alive(pid)]


def test_a_killed_supervisor_leaves_no_service_and_none_of_the_guarded_processes(
    supervised: subprocess.Popen[str], tmp_path: Path
) -> None:
    services = [pids(tmp_path / name)[0] for name in ("first", "second")] + pids(tmp_path / "guarded")

    supervised.kill()

    wait_for(lambda: not [pid for pid in services if is_alive(pid)])
    for name in ("first", "second"):  # not guarded: what left their groups is theirs to end
        os.kill(pids(tmp_path / name)[1], signal.SIGKILL)


def test_a_service_that_dies_is_started_again(supervised: subprocess.Popen[str], tmp_path: Path) -> None:
    service, orphan = pids(tmp_path / "second")

    os.kill(service, signal.SIGKILL)

    wait_for(lambda: num_starts(tmp_path / "second") == 2)
    wait_for(lambda: not is_alive(orphan))


def test_nothing_survives_a_killed_guard(supervised: subprocess.Popen[str], tmp_path: Path) -> None:
    service, orphan = pids(tmp_path / "guarded")
    guard = parent_of(service)
    assert guard is not None

    os.kill(guard, signal.SIGKILL)

    wait_for(lambda: not is_alive(service) and not is_alive(orphan))
    wait_for(lambda: num_starts(tmp_path / "guarded") == 2)


def test_a_one_time_service_runs_once(supervised: subprocess.Popen[str], tmp_path: Path) -> None:
    os.kill(pids(tmp_path / "second")[0], signal.SIGKILL)
    wait_for(lambda: num_starts(tmp_path / "second") == 2)
    wait_for(lambda: "once only" in (tmp_path / "log" / "once.log").read_text())  # it may start slowly

    supervised.send_signal(signal.SIGTERM)
    output, _ = supervised.communicate(timeout=240)

    assert output.count("once only") == 1
    assert "second ended with exit code -9; starting it again in 0.5 s" in output


def test_a_service_waits_for_what_it_needs(supervised: subprocess.Popen[str], tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    assert first.stat().st_mtime_ns <= second.stat().st_mtime_ns
    assert pids(second)[0] in descendants(supervised.pid)


def crash(child: Child, now: float) -> float:
    """Start it, let it end at once and return the pause before its next start."""
    child.start(now)
    assert child.process
    child.process.wait()
    assert child.check_exit(now) == 3
    return child.start_again_at - now


def test_back_off_doubles_up_to_ten_seconds(tmp_path: Path) -> None:
    service = Service(name="crasher", argv=(sys.executable, "-c", "raise SystemExit(3)"), env=dict(os.environ))
    child = Child(service, tmp_path / "log")
    assert [crash(child, now=100.0) for _ in range(7)] == [0.5, 1, 2, 4, 8, 10, 10]


def test_back_off_begins_anew_after_a_healthy_minute(tmp_path: Path) -> None:
    service = Service(name="crasher", argv=(sys.executable, "-c", "raise SystemExit(3)"), env=dict(os.environ))
    child = Child(service, tmp_path / "log")
    crash(child, now=100.0)
    crash(child, now=101.0)

    child.start(200.0)
    assert child.process
    child.process.wait()
    child.check_exit(261.0)

    assert child.start_again_at == 261.5
