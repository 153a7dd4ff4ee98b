"""Code that a model wrote, in a box: what it may use, and what an attack gets through, which is nothing."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobs.box import confine
from jobs.box.seccomp import NotConfined
from jobs.engine.box.client import Boxes, BoxLost, Verdict
from tests.waiting import wait_until

TESTS = [[False, "import math"], [True, "assert f(1) == 2"], [True, "assert f(2) == 3"]]
RIGHT = "def f(x):\n    return x + 1\n"
CASES = [["1 2\n", "3\n"], ["5 6\n", "11"]]
HOUSE = Path(__file__).parents[4]


@pytest.fixture(scope="module")
def boxes() -> Iterator[Boxes]:
    opened = Boxes(cpu_seconds=20, memory_bytes=256 << 20, output_bytes=1 << 16, most=2)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def hurried_boxes() -> Iterator[Boxes]:
    """Boxes that a busy machine may end too early: only for what never ends."""
    opened = Boxes(cpu_seconds=1, memory_bytes=256 << 20, output_bytes=1 << 16, most=2)
    yield opened
    opened.close()


def run(boxes: Boxes, code: str, **tests: Any) -> Verdict:
    (verdict,) = boxes.run([{"code": code, **(tests or {"asserts": TESTS})}], check=lambda: None)
    return verdict


def passes(boxes: Boxes, says: str) -> bool:
    """Return whether a piece of code gets through with an expression: it is right if so, else it raises."""
    return run(boxes, f"def f(x):\n    assert {says}\n    return x + 1\n").num_passed == 2


@pytest.mark.parametrize(
    ("code", "num_passed"),
    [
        (RIGHT, 2),
        ("def f(x):\n    return 2", 1),
        ("def f(x):\n    raise KeyError(x)", 0),
        ("def g(x):\n    return x + 1", 0),
        ("def f(x) return", 0),
        ("import heapq, json, re, decimal, random, datetime, itertools\n" + RIGHT, 2),
        ("print('x' * (1 << 20))\n" + RIGHT, 2),  # what is printed goes nowhere
    ],
)
def test_asserts_are_counted_one_by_one(boxes: Boxes, code: str, num_passed: int) -> None:
    assert run(boxes, code) == Verdict(num_passed=num_passed, timed_out=False)


@pytest.mark.parametrize(
    ("code", "num_passed"),
    [
        ("a, b = map(int, input().split())\nprint(a + b)", 2),
        ("import sys\nprint(sum(map(int, sys.stdin.read().split())), end='   \\n\\n')\nsys.exit(0)", 2),
        ("print(3)", 1),
        ("print(3)\n1 / 0", 0),
        ("print(3)\nexit(1)", 0),
        ("if __name__ == '__main__':\n    print(sum(map(int, input().split())))", 2),
        ("while True:\n    print('y' * 10000)", 0),  # more than the output may be
    ],
)
def test_what_a_program_prints_is_compared_outside_of_the_box(boxes: Boxes, code: str, num_passed: int) -> None:
    assert run(boxes, code, cases=CASES) == Verdict(num_passed=num_passed, timed_out=False)


@pytest.mark.parametrize(
    "code",
    [
        "import sys\nsys.exit(0)",
        "import os\nos._exit(0)",
        "def f(x):\n    import os\n    os._exit(0)",
        "def f(x):\n    raise SystemExit(0)",
        "import atexit, os\natexit.register(os._exit, 0)\nprint('2 passed')",
        "import os\nfor at in range(1, 64):\n    try: os.write(at, b'0\\n1\\n 0\\n 1\\n')\n    except OSError: pass",
        'import os, sys\nfor at in range(1, 64):\n    try:\n        os.write(at, b\'{"number": 0, "passed": [0, 1], \''
        "b'\"timed_out\": false}\\n')\n    except OSError: pass",
    ],
)
def test_no_ending_and_nothing_written_is_taken_for_a_verdict(boxes: Boxes, code: str) -> None:
    assert run(boxes, code) == Verdict(num_passed=0, timed_out=False)
    assert run(boxes, RIGHT).num_passed == 2  # the server goes on


@pytest.mark.parametrize("code", ["while True: pass", "time.sleep(60)"])
def test_what_does_not_end_is_ended(hurried_boxes: Boxes, code: str) -> None:
    boxes = hurried_boxes
    begin = time.monotonic()

    whole = f"import time\n{RIGHT}def g():\n    {code}\n"
    assert run(boxes, whole, asserts=[*TESTS, [True, "g()"], [True, "True"]]) == Verdict(num_passed=2, timed_out=True)
    assert run(boxes, f"import time\n{code}", cases=CASES) == Verdict(num_passed=0, timed_out=True)
    assert time.monotonic() - begin < 60


def test_a_fork_bomb_starts_nothing(boxes: Boxes) -> None:
    bomb = "import os\nwhile True:\n    os.fork()"

    assert run(boxes, bomb).num_passed == 0
    threads = "import threading\nfor _ in range(9999):\n    threading.Thread(target=threading.Event().wait).start()"
    assert run(boxes, threads).num_passed == 0
    assert not passes(boxes, "__import__('subprocess').run(['true'])")


def test_a_memory_hog_gets_no_more_than_its_share(boxes: Boxes) -> None:
    assert not passes(boxes, "bytearray(256 << 20)")
    assert passes(boxes, "bytearray(64 << 20)")
    assert not passes(boxes, "__import__('resource').setrlimit(__import__('resource').RLIMIT_AS, (-1, -1)) is None")


@pytest.mark.parametrize(
    "says",
    [
        "open('{outside}', 'w')",
        "open('mine', 'w')",
        "__import__('os').unlink('{victim}') is None",
        "__import__('os').rename('{victim}', '{outside}') is None",
        "__import__('os').truncate('{victim}', 0) is None",
        "__import__('os').chmod('{victim}', 0) is None",
        "__import__('os').mkdir('{outside}') is None",
        "__import__('os').symlink('{victim}', '{outside}') is None",
        "open('{victim}').read()",
        "__import__('os').listdir('{folder}')",
        "open('/proc/{parent}/environ').read() or True",
        "open('/proc/{server}/environ').read() or True",
        "open('/proc/self/mem', 'rb')",
        "__import__('socket').socket()",
        "__import__('socket').socketpair()",
        "__import__('os').kill({server}, 9) is None",
        "__import__('os').kill({parent}, 9) is None",
        "__import__('os').killpg(0, 9) is None",
        "__import__('signal').pidfd_send_signal(__import__('os').pidfd_open({server}), 9) is None",
        "__import__('ctypes').CDLL(None).syscall(41, 2, 1, 0) >= 0",
        "__import__('ctypes').CDLL(None).unshare(0x10000000) == 0",
        "__import__('ctypes').CDLL(None).ptrace(16, {server}, 0, 0) == 0",
        "__import__('fcntl').fcntl(0, 8, {server}) == 0",
        "__import__('fcntl').fcntl(0, 10, 9) == 0",
        "__import__('os').setpriority(0, {server}, 19) is None",
        "__import__('os').listdir('.')",  # it is there, and empty
        "__import__('os').environ.get('HOME')",
        "'SECRET' in ''.join(__import__('os').environ)",
    ],
)
def test_what_is_outside_is_out_of_reach(boxes: Boxes, says: str, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("secret")
    words = {
        "outside": tmp_path / "outside",
        "victim": victim,
        "folder": tmp_path,
        "parent": os.getpid(),
        "server": boxes._process.pid,
    }

    assert not passes(boxes, says.format(**words))
    assert [path.name for path in tmp_path.iterdir()] == ["victim"]
    assert victim.read_text() == "secret"
    assert run(boxes, RIGHT).num_passed == 2


def test_many_are_run_at_a_time_and_each_gets_its_own_verdict(boxes: Boxes) -> None:
    jobs = [{"code": RIGHT if i % 3 else "def f(x): return 2", "asserts": TESTS} for i in range(40)]

    verdicts = boxes.run(jobs, check=lambda: None)

    assert [verdict.num_passed for verdict in verdicts] == [2 if i % 3 else 1 for i in range(40)]


def test_a_stop_ends_the_wait() -> None:
    boxes = Boxes(cpu_seconds=30, memory_bytes=256 << 20, output_bytes=1 << 16, most=1)

    def stop() -> None:
        raise InterruptedError

    try:
        with pytest.raises(InterruptedError):
            boxes.run([{"code": "while True: pass", "asserts": TESTS}], check=stop)
    finally:
        boxes.close()
    assert not Path(boxes._folder).exists()


def test_boxes_end_with_their_server_and_the_server_with_the_run() -> None:
    program = (
        "import os, sys\nfrom jobs.engine.box.client import Boxes\n"
        "boxes = Boxes(cpu_seconds=60, memory_bytes=256 << 20, output_bytes=1 << 16, most=1)\n"
        "def tell(): print(boxes._process.pid, flush=True); os.kill(os.getpid(), 9)\n"
        f"boxes.run([{{'code': 'while True: pass', 'asserts': {TESTS!r}}}], check=tell)\n"
    )

    ended = subprocess.run([sys.executable, "-c", program], cwd=HOUSE, capture_output=True, text=True, check=False)

    assert ended.returncode == -9
    server = ended.stdout.split()[0]
    wait_until(lambda: not Path(f"/proc/{server}").exists() or not _is_alive(server), 60)


def _is_alive(pid: str) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def test_a_server_that_is_gone_is_told() -> None:
    boxes = Boxes(cpu_seconds=1, memory_bytes=256 << 20, output_bytes=1 << 16, most=1)
    boxes._process.kill()

    with pytest.raises(BoxLost):
        boxes.run([{"code": RIGHT, "asserts": TESTS}], check=lambda: None)
    boxes.close()


def test_a_kernel_without_landlock_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confine, "_CREATE_RULESET", 9999)

    with pytest.raises(NotConfined, match="no Landlock"):
        confine.read_only_own_library()
