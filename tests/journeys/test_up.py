"""`manage.py up` and `manage.py smoke`, as a person starts, kills and stops them, with real Valkey and Ray."""

import contextlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from console.embedded.process_tree import descendants, parent_of
from tests.journeys.conftest import ROOT, Stack, answers, command_line, launch_stack, stop_stack, wait_for_line
from tests.services import own_environment
from tests.waiting import wait_until

pytestmark = pytest.mark.stack


def processes_of(data_dir: Path) -> list[int]:
    """Return the living processes that inherited this data directory's variable (some of Ray's overwrite theirs)."""
    found = []
    mark = f"PITWALL_DATA_DIR={data_dir}\0".encode()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and parent_of(int(entry.name)) is not None:
            try:
                if mark in (entry / "environ").read_bytes() + b"\0":
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def living(processes: list[int]) -> dict[int, str]:
    """Return those that have not ended, with their commands."""
    found = {}
    for pid in processes:
        if parent_of(pid) is not None:
            with contextlib.suppress(OSError):
                found[pid] = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return found


def up_in(stack: Stack, *, data_dir: Path, port: int) -> subprocess.CompletedProcess[str]:
    env = stack.env | {"PITWALL_DATA_DIR": str(data_dir)}
    command = [sys.executable, str(ROOT / "manage.py"), "up", "--port", str(port)]
    return subprocess.run(command, env=env, check=False, capture_output=True, text=True, timeout=200)


def test_a_second_start_in_the_same_directory_is_refused(stack: Stack) -> None:
    done = up_in(stack, data_dir=stack.data_dir, port=stack.port + 1)
    assert done.returncode == 1
    assert f"already runs in {stack.data_dir} (process {stack.process.pid})" in done.stderr


def test_a_taken_port_is_refused_and_nothing_starts(stack: Stack, tmp_path: Path) -> None:
    done = up_in(stack, data_dir=tmp_path, port=stack.port)
    assert done.returncode == 1
    assert f"Port {stack.port} on 127.0.0.1 is already in use" in done.stderr
    assert processes_of(tmp_path) == []
    assert not (tmp_path / "pitwall.sqlite3").exists()


@pytest.mark.parametrize("service", ["web", "redis"])
def test_a_killed_service_comes_back(stack: Stack, service: str) -> None:
    programs = {"web": "manage.py\0web", "redis": "valkey-server"}
    pid = next(pid for pid in descendants(stack.process.pid) if programs[service] in command_line(pid))

    os.kill(pid, signal.SIGKILL)

    wait_for_line(stack, rf"{service} ended with exit code -9; starting it again in", seconds=400)
    wait_until(lambda: answers(stack, "/readyz", seconds=60), seconds=400, what=f"no new {service} answered")


def test_ctrl_c_during_the_start_leaves_nothing() -> None:
    running = launch_stack()
    wait_until(
        lambda: any("gcs_server" in command_line(pid) for pid in descendants(running.process.pid)),
        seconds=400,
        what=lambda: f"Ray did not begin to start: {running.output.read_text()}",
    )
    processes = descendants(running.process.pid)

    code = stop_stack(running)

    assert code == 0
    assert not [pid for pid in processes if parent_of(pid)]
    assert processes_of(running.data_dir) == []


@pytest.mark.proof
def test_a_smoke_test_that_has_no_time_starts_the_demo_and_fails(tmp_path: Path) -> None:
    """What it makes of a demo that learned, or did not, is in tests/console/embedded/test_smoke.py."""
    env = {**own_environment(), "TMPDIR": str(tmp_path)}
    command = [sys.executable, str(ROOT / "manage.py"), "smoke", "--seconds", "0"]

    done = subprocess.run(command, cwd=ROOT, env=env, check=False, capture_output=True, text=True, timeout=900)

    assert done.returncode == 1, done.stdout + done.stderr
    assert re.search(r"the demo is run r-[0-9a-f]+", done.stdout)
    assert re.search(r"The demo run did not end within 0 s; it is \w+, step 0 of", done.stderr)
    assert list(tmp_path.glob("pw-smoke-*")) == []


def test_a_killed_supervisor_leaves_nothing_of_itself_or_of_ray(stack: Stack) -> None:
    """The last one that uses this console."""
    wait_for_line(stack, "Ray is ready", seconds=400)
    running = descendants(stack.process.pid)
    commands = [command_line(pid) for pid in running]
    assert len(commands) > 15
    assert not [each for each in commands if "ray.util.client" in each or "autoscaler" in each], "nobody needs these"

    stack.process.kill()
    stack.process.wait()

    wait_until(lambda: not living(running), seconds=200, what=lambda: f"{living(running)} did not end")
    wait_until(
        lambda: not processes_of(stack.data_dir),
        seconds=120,
        what=lambda: f"{living(processes_of(stack.data_dir))} did not end",
    )
