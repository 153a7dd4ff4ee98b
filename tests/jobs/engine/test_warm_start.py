"""A program that is forked from a warm process looks, ends and dies like one that was started."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.engine.warm import server, start
from tests.waiting import wait_until

SERVE = """
import sys
from pathlib import Path
from jobs.engine.warm.server import open_listener, serve
import colorsys  # what the others need not import
serve(open_listener(Path(sys.argv[1])))
"""
TELL = """
import os, sys
from pathlib import Path
print("colorsys" in sys.modules, os.getppid() == {server}, sys.argv[1:], os.getcwd(), Path(sys.argv[0]).name)
print("MARK=of this run" in Path("/proc/self/environ").read_text().split(chr(0)), os.environ.get("PITWALL_WARM_ROOM"))
print("to stderr", file=sys.stderr)
sys.exit(7)
"""
WAIT = "import time; print('here', flush=True); time.sleep(600)"


@pytest.fixture
def warm(tmp_path: Path) -> Iterator[tuple[Path, int]]:
    """A server that has nothing heavy: its socket and its process."""
    path = tmp_path / "warm.sock"
    env = {**os.environ, server.ROOM: "x" * server.ROOM_BYTES}
    process = subprocess.Popen([sys.executable, "-c", SERVE, str(path)], env=env, cwd=Path(__file__).parents[3])
    try:
        wait_until(path.exists, 60, lambda: "the server does not listen")
        yield path, process.pid
    finally:
        process.kill()
        process.wait()


def command(socket: Path, program: Path, *arguments: str) -> list[str]:
    return [sys.executable, "-IS", str(Path(start.__file__)), str(socket), str(program), *arguments]


def written(folder: Path, text: str) -> Path:
    program = folder / "program.py"
    program.write_text(text)
    return program


def test_a_fork_has_the_libraries_and_everything_of_who_asked(warm: tuple[Path, int], tmp_path: Path) -> None:
    socket, pid = warm
    program = written(tmp_path, TELL.format(server=pid))
    env = {**os.environ, "MARK": "of this run"}
    done = subprocess.run(
        command(socket, program, "one", "two words"), env=env, cwd=tmp_path, capture_output=True, text=True, check=False
    )

    assert done.returncode == 7
    assert done.stderr == "to stderr\n"
    first, second = done.stdout.splitlines()
    assert first == f"True True ['one', 'two words'] {tmp_path} program.py"
    assert second == "True None"


def test_without_a_server_or_without_room_the_program_starts_as_always(warm: tuple[Path, int], tmp_path: Path) -> None:
    program = written(tmp_path, TELL.format(server=warm[1]))
    too_much = {**os.environ, "MARK": "of this run", "LARGE": "x" * (3 * server.ROOM_BYTES)}
    for socket, env in ((tmp_path / "none.sock", {**os.environ, "MARK": "of this run"}), (warm[0], too_much)):
        done = subprocess.run(
            command(socket, program, "one"), env=env, cwd=tmp_path, capture_output=True, text=True, check=False
        )

        assert done.returncode == 7
        assert done.stdout.splitlines() == [f"False False ['one'] {tmp_path} program.py", "True None"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_who_ends_the_one_that_asked_ends_the_fork(
    warm: tuple[Path, int], tmp_path: Path, number: signal.Signals
) -> None:
    program = written(tmp_path, "import os; print(os.getpid(), flush=True)\n" + WAIT)
    with subprocess.Popen(command(warm[0], program), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        fork = int(process.stdout.readline())
        assert fork != process.pid
        process.send_signal(number)
        assert process.wait(60) == -number
    wait_until(lambda: not Path(f"/proc/{fork}").exists(), 60, lambda: f"{fork} is still there")


def test_a_fork_that_is_killed_is_told_as_killed(warm: tuple[Path, int], tmp_path: Path) -> None:
    program = written(tmp_path, "import os; print(os.getpid(), flush=True)\n" + WAIT)
    with subprocess.Popen(command(warm[0], program), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        os.kill(int(process.stdout.readline()), signal.SIGKILL)
        assert process.wait(60) == -signal.SIGKILL
