"""The processes that run a reward's code: side by side, each completion in its time, and nothing left of them."""

import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jobs.catalog.spec.runspec import RewardSource
from jobs.engine.failures.failure_cause import RunStopped, cause_of
from jobs.engine.rewards.custom import CustomReward
from jobs.engine.rollouts import reward_pool, reward_worker
from jobs.engine.rollouts.reward import Completion, RewardFailed, ScoringLimits
from jobs.engine.rollouts.reward_pool import RewardPool
from tests.jobs.engine.pool_clock import Clock
from tests.waiting import wait_until

CUSTOM = "def reward(prompt, completion, answer):\n    return len(completion) / 10\n"
# Who scores completion `c` waits until as many others are being scored as the answer says.
TOGETHER = """
import os, pathlib, time
def reward(p, c, a):
    folder = pathlib.Path(p)
    (folder / c).write_text(str(os.getpid()))
    end = time.monotonic() + 100
    while len(list(folder.iterdir())) < int(a) and time.monotonic() < end:
        time.sleep(0.01)
    return float(c) if time.monotonic() < end else -1.0
"""
# The prompt is a file, by which a slow completion says that it is under way.
HANGING = "def reward(p, c, a):\n    while 'slow' in c:\n        open(p, 'w').close()\n    return len(c)"


def completions(*texts: str, prompt: str = "p", answer: str = "1") -> list[Completion]:
    return [Completion(prompt=prompt, completion=text, answer=answer) for text in texts]


def opened(source: str, **limits: object) -> RewardPool:
    return RewardPool(source, file_name="mine.py", limits=ScoringLimits(**limits))  # type: ignore[arg-type]


@pytest.fixture
def pids(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Every process that a pool has started; at the end all have to be gone."""
    started: list[int] = []
    popen = reward_worker.subprocess.Popen

    def start(*arguments: object, **options: object) -> object:
        process = popen(*arguments, **options)  # type: ignore[call-overload]
        started.append(process.pid)
        return process

    monkeypatch.setattr(reward_worker.subprocess, "Popen", start)
    yield started
    assert [pid for pid in started if Path(f"/proc/{pid}").exists()] == []


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def failure_of(source: str, *texts: str, prompt: str = "p", **limits: object) -> RewardFailed:
    """Return how scoring by the custom reward fails."""
    given = RewardSource(kind="custom", source=source, file_name="mine.py")

    def run() -> None:
        reward = CustomReward(given, ScoringLimits(**limits))  # type: ignore[arg-type]
        try:
            reward.score(completions(*texts or ("abc",), prompt=prompt))
        finally:
            reward.close()

    with pytest.raises(RewardFailed) as caught:
        run()
    return caught.value


def test_completions_are_scored_at_the_same_time_and_their_order_is_kept(tmp_path: Path, pids: list[int]) -> None:
    pool = opened(TOGETHER, num_workers=4)
    texts = [str(n) for n in range(4)]

    assert pool.score(completions(*texts, prompt=str(tmp_path), answer="4")) == [0.0, 1.0, 2.0, 3.0]
    assert len({file.read_text() for file in tmp_path.iterdir()}) == 4
    pool.close()


def test_a_long_batch_is_scored_side_by_side_to_its_end(tmp_path: Path, pids: list[int]) -> None:
    """Each completion waits for the three others of its group of four: one after the other none would end."""
    source = (
        "import pathlib, time\n"
        "def reward(p, c, a):\n"
        "    (pathlib.Path(p) / c).touch()\n"
        "    first = int(c) // 4 * 4\n"
        "    while not all((pathlib.Path(p) / str(n)).exists() for n in range(first, first + 4)):\n"
        "        time.sleep(0.001)\n"
        "    return int(c)"
    )
    pool = opened(source, num_workers=4)

    assert pool.score(completions(*map(str, range(200)), prompt=str(tmp_path))) == list(range(200))
    assert len(pids) == 4
    pool.close()


def test_the_number_of_processes_changes_no_result(pids: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reward_pool, "_GROW_SECONDS", 0.0)
    source = "def reward(p, c, a):\n    return hash(c) % 1000 + len(c)"
    results = []
    for num_workers in (1, 2, 5):
        pool = opened(source, num_workers=num_workers)
        results.append(pool.score(completions(*map(str, range(64)))))
        pool.close()

    assert results[0] == results[1] == results[2]
    assert len(set(results[0])) > 32


def test_processes_are_started_once_and_only_where_they_are_of_use(pids: list[int], tmp_path: Path) -> None:
    pool = opened(TOGETHER, num_workers=8)
    assert pool.score(completions("1", prompt=str(tmp_path), answer="1")) == [1.0]
    assert len(pids) == 1  # one completion

    (tmp_path / "1").unlink()
    assert pool.score(completions("1", "2", prompt=str(tmp_path), answer="2")) == [1.0, 2.0]
    assert len(pids) == 2  # two, and the first is still there

    pool.score(completions("1", "2", prompt=str(tmp_path), answer="2"))
    assert len(pids) == 2
    pool.close()


def test_a_file_that_only_one_process_can_load_is_scored_by_one(
    pids: list[int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first completion waits until the second process has come and gone."""
    source = (
        "import os, pathlib, time\n"
        f"folder = pathlib.Path({str(tmp_path)!r})\n"
        "(folder / f'pid-{os.getpid()}').touch()\n"
        "(folder / 'taken').mkdir()\n"
        "def others():\n"
        "    pids = [int(f.name[4:]) for f in folder.glob('pid-*')]\n"
        "    return [pid for pid in pids if pid != os.getpid()]\n"
        "def reward(p, c, a):\n"
        "    while not others() or os.path.exists(f'/proc/{others()[0]}'):\n"
        "        time.sleep(0.01)\n"
        "    return 1.0"
    )
    pool = opened(source, num_workers=2)

    assert pool.score(completions(*"abc")) == [1.0] * 3
    assert len(pids) == 2
    said = "Scoring goes on in fewer processes, 1: The reward mine.py line 4 raised FileExistsError"
    assert said in capsys.readouterr().out
    pool.close()


def test_the_slow_completion_is_named_and_ends_the_run(pids: list[int], clock: Clock, tmp_path: Path) -> None:
    begun = tmp_path / "b"
    texts, check = ("quick", "a slow one", "quick"), clock.pass_once(begun.exists)

    failed = failure_of(HANGING, *texts, prompt=str(begun), num_workers=1, timeout_seconds=600.0, check=check)

    assert failed.kind == "hung"
    said = (
        f"The reward mine.py did not score completion 2 of 3 (prompt {str(begun)[:60]!r}, completion 'a slow one') "
        "within 600 s (reward.timeout_seconds), at mine.py line 3 in reward. Make it return faster."
    )
    assert re.sub("line [23]", "line 3", str(failed)) == said
    assert failed.log_line.startswith("mine.py line ")


def test_the_first_failure_of_the_batch_is_reported_however_many_processes_there_are(
    pids: list[int], tmp_path: Path
) -> None:
    """The third raises at once, the second later: it waits until the third has."""
    source = (
        "import os, time\n"
        "def reward(p, c, a):\n"
        "    if c == 'third':\n"
        f"        open({str(tmp_path / 'raised')!r}, 'w').close()\n"
        "        raise ValueError(c)\n"
        f"    while c == 'second' and not os.path.exists({str(tmp_path / 'raised')!r}):\n"
        "        time.sleep(0.01)\n"
        "    if c == 'second':\n"
        "        raise ValueError(c)\n"
        "    return 1"
    )

    failed = failure_of(source, "first", "second", "third", "fourth", num_workers=3)

    assert str(failed) == "The reward mine.py line 9 raised ValueError: second on completion 2 ('second')."


def test_a_call_that_may_be_lost_costs_only_itself(pids: list[int], clock: Clock, tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    source = HANGING.replace("    return", "    if 'dead' in c:\n        import os; os._exit(3)\n    return")
    pool = opened(source, timeout_seconds=600.0, check=clock.pass_once(begun.exists))

    rewards = pool.score(completions("a", "slow", "dead", "bcd", prompt=str(begun)), may_lose=True)

    assert rewards == [1.0, None, None, 3.0]
    assert len(pids) == 3
    assert pool.score(completions("abcd"), may_lose=True) == [4.0]
    pool.close()


def test_a_call_that_may_be_lost_is_not_where_it_got_no_cpu_time(
    pids: list[int], clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A busy machine keeps it waiting: more than its time has passed, but it has not had it."""
    begun, go_on = tmp_path / "begun", tmp_path / "go"
    monkeypatch.setattr(reward_pool.RewardPool, "_seconds_left", go_on_once(go_on, reward_pool.RewardPool))
    source = HANGING.replace("while 'slow' in c", f"import os\n    while not os.path.exists({str(go_on)!r})")
    pool = opened(source, timeout_seconds=600.0, check=clock.pass_once(begun.exists, seconds=700.0))

    assert pool.score(completions("slow", prompt=str(begun)), may_lose=True) == [4.0]
    assert go_on.exists()
    pool.close()


def go_on_once(path: Path, pool: type[RewardPool]) -> Callable[..., float]:
    """Let a call end once the pool has asked what time it has left."""
    seconds_left = pool._seconds_left

    def asked(self: RewardPool, worker: reward_worker.RewardWorker) -> float:
        path.touch()
        return seconds_left(self, worker)

    return asked


def test_a_stop_ends_the_scoring_and_its_processes(pids: list[int], tmp_path: Path) -> None:
    begun = tmp_path / "begun"

    def check() -> None:
        if begun.exists():
            raise RunStopped

    pool = opened(HANGING, num_workers=2, timeout_seconds=600.0, check=check)
    with pytest.raises(RunStopped):
        pool.score(completions("slow", "slow", "slow", prompt=str(begun)))

    assert pool.num_processes == 0


def test_what_a_reward_started_ends_with_it(tmp_path: Path, pids: list[int], clock: Clock) -> None:
    child = tmp_path / "child"
    source = (
        "import os, subprocess\n"
        "def reward(p, c, a):\n"
        "    process = subprocess.Popen(['sleep', '600'])\n"
        "    open(p + '.part', 'w').write(str(process.pid))\n"
        "    os.rename(p + '.part', p)\n"
        "    while True: pass"
    )

    assert failure_of(source, prompt=str(child), check=clock.pass_once(child.exists)).kind == "hung"

    wait_until(lambda: not is_alive(child.read_text()), seconds=60)


def is_alive(pid: str) -> bool:
    """Whether a process runs; one that nobody has waited for has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_process_that_does_not_read_a_large_completion_is_out_of_time(pids: list[int], clock: Clock) -> None:
    """It is more than a pipe holds: the driver does not wait for the reader."""
    is_stopped: list[int] = []
    pool = opened("def reward(p, c, a):\n    return len(c)", check=clock.pass_once(lambda: bool(is_stopped)))
    assert pool.score(completions("x" * 1_000_000)) == [1_000_000.0]

    is_stopped.append(1)
    os.kill(pids[0], signal.SIGSTOP)
    assert pool.score(completions("x" * 1_000_000), may_lose=True) == [None]
    pool.close()


def test_what_a_reward_reads_from_stdin_is_empty_and_takes_no_request(pids: list[int]) -> None:
    """A program that it runs on a completion may ask for input."""
    source = (
        "import subprocess, sys\n"
        "def reward(p, c, a):\n"
        "    return len(subprocess.run(['cat'], capture_output=True).stdout) + len(sys.stdin.read()) + len(c)"
    )
    pool = opened(source)

    assert pool.score(completions("a", "bc", "def")) == [1.0, 2.0, 3.0]
    pool.close()


def test_a_reward_that_goes_on_in_two_processes_is_not_believed(pids: list[int]) -> None:
    """Both answer: which completion a reward belongs to would be a matter of chance."""
    pool = opened("import os\ndef reward(p, c, a):\n    if c == 'fork': os.fork()\n    return len(c)")
    failures: list[RewardFailed] = []

    def has_failed(text: str) -> bool:
        try:
            pool.score(completions(text))
        except RewardFailed as failed:
            failures.append(failed)
        return bool(failures)

    assert has_failed("fork") or wait_until(lambda: has_failed("a"), 60)
    assert failures[0].kind == "wrong_type"
    assert "answered a second time" in str(failures[0])


def test_a_late_second_answer_is_not_the_reward_of_the_next_completion(pids: list[int]) -> None:
    """Both completions are the first of their batch."""
    source = (
        "import os, time\n"
        "begun, begin = os.pipe()\n"
        "def reward(p, c, a):\n"
        "    if c == 'fork' and os.fork() == 0:\n"
        "        os.read(begun, 1)\n"
        "    elif c != 'fork':\n"
        "        os.write(begin, b'x')\n"
        "        time.sleep(600)\n"
        "    return len(c)"
    )
    pool = opened(source)
    assert pool.score(completions("fork")) == [4.0]

    with pytest.raises(RewardFailed, match="answered a second time"):
        pool.score(completions("a"))


@pytest.mark.parametrize("spoilt", ["b'nonsense\\n'", "b'[]\\n'", "b'x' * 3_000_000"])
def test_what_is_no_reply_ends_the_run_with_a_sentence(pids: list[int], spoilt: str) -> None:
    source = (
        "import contextlib, os\n"
        "def reward(p, c, a):\n"
        "    for number in range(3, 20):\n"
        "        with contextlib.suppress(OSError):\n"
        f"            os.write(number, {spoilt})\n"
        "    return 1"
    )

    failed = failure_of(source)

    assert failed.kind == "wrong_type"
    assert "something that is no reward while scoring completion 1 of 1" in str(failed)


def test_what_a_reward_prints_in_a_long_run_is_not_kept_for_ever(pids: list[int]) -> None:
    source = (
        "def reward(p, c, a):\n    print('x' * 200_000)\n    print('last words')\n"
        "    if c == 'end':\n        import os; os._exit(1)\n    return 1"
    )
    pool = opened(source)
    pool.score(completions(*"ab" * 20))

    (worker,) = pool._workers
    assert os.fstat(worker._errors.fileno()).st_size <= reward_worker._MOST_ERROR_BYTES
    with pytest.raises(RewardFailed) as caught:
        pool.score(completions("end"))
    assert caught.value.log_line == "last words"


def test_what_an_exception_says_is_shortened() -> None:
    failed = failure_of("def reward(p, c, a):\n    raise ValueError('x' * 5_000_000)")

    assert failed.kind == "raised"
    assert len(str(failed)) < 1000


def test_a_reward_finds_no_token_in_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PITWALL_TOKEN", "RAY_AUTH_TOKEN", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "JUDGE_KEY"):
        monkeypatch.setenv(name, "x")
    source = (
        "import os\n"
        "def reward(prompt, completion, answer):\n"
        "    return 10 * ('JUDGE_KEY' in os.environ) + sum('TOKEN' in name for name in os.environ)\n"
    )
    pool = opened(source)

    assert pool.score(completions("abc")) == [10.0]
    pool.close()


def test_a_reward_that_raises_names_file_line_and_completion() -> None:
    failed = failure_of("def reward(p, c, a):\n    x = 1\n    return x / 0")

    assert failed.kind == "raised"
    assert str(failed) == (
        "The reward mine.py line 3 raised ZeroDivisionError: division by zero on completion 1 ('abc')."
    )
    assert failed.log_line == "mine.py line 3: return x / 0"


@pytest.mark.parametrize(
    ("source", "kind", "said"),
    [
        ("def reward(p, c, a):\n    return '1'", "wrong_type", "returned str '1' on completion 1. Return a float."),
        ("def reward(p, c, a):\n    return float('nan')", "wrong_type", "Return a finite number"),
        ("def reward(p, c, a):\n    return 10 ** 400", "wrong_type", "Return a finite number"),
        ("x = 1", "wrong_type", "defines no function reward(prompt, completion, answer)"),
        ("def reward(", "raised", "mine.py line 1 raised SyntaxError"),
        ("import no_such_package", "raised", "mine.py line 1 raised ModuleNotFoundError"),
        (
            "import os\ndef reward(p, c, a):\n    os._exit(3)",
            "died",
            "ended its process while scoring completion 1 of 1 (prompt 'p', completion 'abc').",
        ),
        ("import os\nos._exit(3)", "died", "ended its process while it was loaded."),
        (
            "while True: pass",
            "hung",
            "was not loaded within 2 s, at mine.py line 1 in <module>. Make it load faster.",
        ),
    ],
)
def test_what_else_goes_wrong_is_told_apart(source: str, kind: str, said: str, pids: list[int]) -> None:
    failed = failure_of(source, load_seconds=2.0 if kind == "hung" else 60.0)

    assert failed.kind == kind
    assert said in str(failed)


def interpret(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Let the reward's process be started by a shell script."""
    program = folder / "python"
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))


@pytest.mark.parametrize(
    ("text", "said"),
    [("exec sleep 600", "did not start within 0.3 s"), ("echo no room >&2; exit 1", "ended while it started")],
)
def test_a_process_that_does_not_come_up_is_no_fault_of_the_reward(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, said: str
) -> None:
    interpret(tmp_path, monkeypatch, text)
    monkeypatch.setattr(reward_pool, "_UP_SECONDS", 0.3 if "sleep" in text else 60.0)

    failed = failure_of(CUSTOM)

    assert said in str(failed)
    assert cause_of(failed, step=1, log_tail={})["side"] == "cluster"


def test_an_interpreter_that_greets_disturbs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    interpret(tmp_path, monkeypatch, f'echo welcome; exec {sys.executable} "$@"')
    pool = opened(CUSTOM)

    assert pool.score(completions("abc")) == [pytest.approx(0.3)]
    pool.close()
