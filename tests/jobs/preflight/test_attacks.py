"""What a reward tries that means harm, in a trial: it gets nothing of the console, and leaves nothing."""

import contextlib
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings

from jobs.preflight import client, sandbox
from jobs.preflight.client import TrialFailed, TrialHindered, run_trial
from jobs.preflight.inputs import uploads_dir
from jobs.preflight.sandbox import LEVELS, Allowance, Confinement, why_not
from tests.waiting import wait_until

MARK = "pitwall-attacked"
ATTACKS = """
import ctypes, glob, os, socket, subprocess, sys
T = %r
libc = ctypes.CDLL(None, use_errno=True)

def read(path):
    with open(path, "rb") as file:
        return file.read() or True

def of_others(name):
    found = []
    for path in glob.glob("/proc/[0-9]*/" + name) or [f"/proc/{T['console']}/{name}"]:
        try:
            found.append(read(path))
        except OSError:
            pass
    return any(T["mark"].encode() in text for text in found if text is not True)

def connect(kind, to, how=socket.SOCK_STREAM):
    with socket.socket(kind, how) as opened:
        opened.settimeout(1)
        opened.connect(to)
        return True

def write(path):
    with open(path, "a") as file:
        return file.write("x")

def called(result):
    return result == 0

TRIES = {
    "environment of others": lambda: of_others("environ"),
    "command lines of others": lambda: of_others("cmdline"),
    "memory of the console": lambda: open(f"/proc/{T['console']}/mem", "r+b"),
    "secret key": lambda: read(T["secret_key"]),
    "database": lambda: read(T["database"]),
    "another project's upload": lambda: read(T["upload"]),
    "list of uploads": lambda: os.listdir(os.path.dirname(T["upload"])),
    "the tree": lambda: read(T["tree"]),
    "accounts of the machine": lambda: read("/etc/passwd"),
    "loopback": lambda: connect(socket.AF_INET, ("127.0.0.1", T["port"])),
    "network": lambda: connect(socket.AF_INET, ("192.0.2.1", 9), socket.SOCK_DGRAM),
    "unix socket": lambda: connect(socket.AF_UNIX, T["socket"]),
    "the code": lambda: write(T["code"]),
    "the packages": lambda: write(os.path.join(os.path.dirname(os.__file__), "os.py")),
    "the upload": lambda: write(T["upload"]),
    "a file of its user": lambda: os.truncate(T["database"], 0) or True,
    "signal": lambda: os.kill(T["console"], 0) or True,
    "ptrace": lambda: called(libc.ptrace(16, T["console"], 0, 0)),
    "ptrace of the trial": lambda: called(libc.ptrace(16, os.getppid(), 0, 0)),
    "memory of the trial": lambda: called(libc.process_vm_readv(os.getppid(), 0, 0, 0, 0, 0)),
    "namespaces": lambda: called(libc.unshare(0x10000000)),
    "namespaces of a child": lambda: libc.syscall(56, 0x10000000 | 17, 0, 0, 0, 0) > 0,
    "mount": lambda: called(libc.mount(b"none", b"/tmp", b"tmpfs", 0, None)),
    "file in memory": lambda: os.memfd_create("x"),
    "rights": lambda: os.setuid(T["console"]) or True,
    "core limit": lambda: __import__("resource").setrlimit(0, (1 << 40, 1 << 40)) or True,
}

def reward(prompt, completion, answer):
    got = []
    for name, attempt in TRIES.items():
        try:
            if attempt():
                got.append(name)
        except Exception:
            pass
    raise ValueError("got " + repr(got))
"""


@pytest.fixture(params=LEVELS)
def level(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Close trials in to this level, if this machine can."""
    if reason := why_not(request.param):
        pytest.skip(reason)
    monkeypatch.setattr(client, "confinement", lambda: Confinement(level=request.param))
    return str(request.param)


@pytest.fixture
def console(tmp_path: Path) -> Iterator[dict[str, Any]]:
    """A process, files and sockets as the console has them."""
    data = settings.DATA_DIR
    uploads_dir().mkdir(parents=True, exist_ok=True)
    places = {"secret_key": data / "secret_key", "database": data / "attacked.sqlite3", "upload": uploads_dir() / MARK}
    for place in places.values():
        place.touch()
        place.write_text("secret") if place.name != "secret_key" else None
    process = subprocess.Popen(
        [sys.executable, "-S", "-c", "print('up', flush=True); input()", MARK],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={"SECRET": MARK},
    )  # fmt: skip
    assert process.stdout is not None
    process.stdout.readline()
    with socket.create_server(("127.0.0.1", 0)) as port, socket.socket(socket.AF_UNIX) as named:
        named.bind(str(tmp_path / "redis.sock"))
        named.listen()
        yield {
            **{name: str(place) for name, place in places.items()},
            "console": process.pid,
            "mark": MARK,
            "tree": str(sandbox.HOUSE / "manage.py"),
            "code": str(sandbox.HOUSE / "jobs" / "box" / "closed.py"),
            "port": port.getsockname()[1],
            "socket": str(tmp_path / "redis.sock"),
        }
    assert process.poll() is None
    process.kill()
    process.communicate()
    assert places["database"].read_text() == "secret"
    for name in ("database", "upload"):
        places[name].unlink()


def tried(source: str, **more: Any) -> list[float]:
    spec = {"reward": {"kind": "custom", "source": source, "file_name": "r.py"}, **more}
    return [
        row["reward"] for row in run_trial({"op": "reward", "spec": spec, "samples": 2}, timeout_seconds=60)["results"]
    ]


def failed(source: str) -> TrialFailed:
    with pytest.raises(TrialFailed) as caught:
        tried(source)
    return caught.value


@pytest.mark.usefixtures("level")
def test_a_reward_gets_nothing_of_the_console(console: dict[str, Any]) -> None:
    assert "raised ValueError: got []" in failed(ATTACKS % console).message


def test_the_attacks_get_through_where_nothing_is_closed_in(
    console: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the test above would hold whatever it tries."""
    monkeypatch.setattr(client, "confinement", lambda: Confinement(level="none"))
    kept = ("environment of others", "secret key", "database", "another project's upload", "loopback", "signal")
    lines = [
        line
        for line in ATTACKS.splitlines()
        if not line.startswith('    "') or line.strip().startswith(tuple(f'"{each}":' for each in kept))
    ]

    said = failed("\n".join(lines) % console).message

    assert all(name in said for name in kept)


@pytest.mark.usefixtures("level")
def test_a_path_that_leads_elsewhere_once_it_was_looked_at_is_not_read(tmp_path: Path) -> None:
    """Who may write below a data root could put a link there between the look and the trial."""
    rows = "\n".join(f'{{"prompt": "q{n}", "answer": "{n}"}}' for n in range(4))
    mine, secret = tmp_path / "mine.jsonl", tmp_path / "secret.jsonl"
    for file in (mine, secret):
        file.write_text(rows)
    spec = {
        "data": {"kind": "path", "id": str(mine)},
        "reward": {"kind": "custom", "source": "def reward(p, c, a):\n    return 1.0", "file_name": "r.py"},
    }
    op = {"op": "reward", "spec": spec, "samples": 2}
    allowance = Allowance(read=(mine,), real={mine: mine})
    assert run_trial(op, timeout_seconds=60, allowance=allowance)["results"]

    mine.unlink()
    mine.symlink_to(secret)

    with pytest.raises(TrialFailed) as caught:
        run_trial(op, timeout_seconds=60, allowance=allowance)
    assert caught.value.field == "data.id"


@pytest.mark.usefixtures("level")
def test_a_harmless_reward_answers() -> None:
    source = "import re, math, collections, json\ndef reward(p, c, a):\n    print('x')\n    return float(a in c)"

    assert tried(source) == [1.0, 0.0]


def test_a_reward_may_start_programs_and_write_in_its_own_folder(level: str) -> None:
    source = (
        "import asyncio, subprocess, sys, tempfile\ndef reward(p, c, a):\n"
        "    asyncio.run(asyncio.sleep(0))\n    with tempfile.NamedTemporaryFile() as file:\n        file.write(b'x')\n"
        "    return float(subprocess.run([sys.executable, '-S', '-c', 'print(2)'], capture_output=True).stdout)"
    )

    if level == "namespaces":
        assert tried(source) == [2.0, 2.0]
    else:  # which says nothing against the reward
        assert isinstance(failed(source), TrialHindered)


def test_processes_without_end(level: str) -> None:
    source = (
        "import os, time\nN = 0\ndef reward(p, c, a):\n    global N\n    try:\n        while True:\n"
        "            if os.fork() == 0:\n                time.sleep(60)\n            N += 1\n"
        "    except OSError:\n        raise ValueError(f'{N} started') from None"
    )

    said = failed(source).message

    if level == "landlock":
        assert "0 started" in said
    else:
        assert 20 < int(said.partition(" started")[0].rpartition(" ")[2]) < sandbox.MAX_PROCESSES


def test_memory_without_end(level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "MAX_MEMORY_BYTES", 1 << 30)
    in_children = (
        "import os, time\ndef reward(p, c, a):\n    for _ in range(8):\n        if os.fork() == 0:\n"
        "            held = bytearray(os.urandom(1 << 20)) * 96\n            time.sleep(30)\n    time.sleep(30)"
    )

    assert "MemoryError" in failed("def reward(p, c, a):\n    return len(bytearray(2 << 30))").message
    if level == "namespaces":
        assert "held too much" in failed(in_children).message


def test_a_full_disk_is_its_own(level: str) -> None:
    source = (
        "import tempfile\nN = 0\ndef reward(p, c, a):\n    global N\n    files = []\n    try:\n        while True:\n"
        "            files.append(tempfile.NamedTemporaryFile(buffering=0))\n"
        "            while files[-1].write(bytes(1 << 20)) == 1 << 20 and files[-1].tell() < 16 << 20:\n"
        "                N += 1\n    except OSError:\n        raise ValueError(f'{N} MiB') from None"
    )

    said = failed(source).message

    assert int(said.partition(" MiB")[0].rpartition(" ")[2]) <= (64 if level == "namespaces" else 0)


@pytest.mark.usefixtures("level")
def test_nothing_outlives_the_trial(tmp_path: Path) -> None:
    mark = str(tmp_path)
    source = (
        "import os, subprocess, sys\ntry:\n    if os.fork() == 0:\n        os.setsid()\n"
        f"        subprocess.Popen([sys.executable, '-S', '-c', 'import time; time.sleep(60)', {mark!r}])\n"
        "        os._exit(0)\nexcept OSError:\n    pass\ndef reward(p, c, a):\n    return 1.0"
    )

    assert tried(source) == [1.0, 1.0]

    wait_until(lambda: not is_running(mark), 30)


@pytest.mark.usefixtures("level")
def test_whoever_ends_the_trial_ends_its_own(console: dict[str, Any]) -> None:
    source = "import os, signal\ndef reward(p, c, a):\n    os.kill(os.getppid(), 9)\n    return 1.0"

    failed(source)

    assert Path(f"/proc/{console['console']}").exists()


def is_running(mark: str) -> bool:
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if mark.encode() in file.read_bytes().split(b"\0"):
                return True
    return False
