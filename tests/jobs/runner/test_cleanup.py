"""The clean-up job of an attempt whose runner was killed: nothing left running, nothing shipped twice or lost."""

from pathlib import Path

import psutil
import pytest

from tests.jobs.runner.conftest import House
from tests.jobs.runner.fake_console import FakeConsole
from tests.waiting import wait_until

LEAVES_AN_ORPHAN = """
if os.fork() == 0:
    os.setsid()
    (run_dir / "orphan").write_text(str(os.getpid()))
    time.sleep(600)
metric(1)
time.sleep(600)
"""


def is_gone(pid: int) -> bool:
    """Return True if the process has ended, collected by its parent or not."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def kill_runner(house: House, console: FakeConsole) -> int:
    """Start a run, kill its runner, and return the process id of what it leaves behind."""
    house.trainer(LEAVES_AN_ORPHAN)
    runner = house.start()
    console.wait_for(lambda: console.of_kind("metric"))
    told = house.run_dir / "orphan"
    orphan = wait_until(lambda: told.exists() and told.read_text(), 60)
    trainer = psutil.Process(runner.pid).children()[0]
    runner.kill()
    runner.wait()
    psutil.wait_procs([trainer], timeout=10)
    return int(orphan)


def test_cleanup_ends_the_orphan_ships_the_rest_and_gives_the_cleanup_report(
    house: House, console: FakeConsole
) -> None:
    orphan = kill_runner(house, console)
    with (house.run_dir / "events.jsonl").open("a") as log:
        log.write('{"kind":"metric","attempt":1,"step":2,"role":"driver","rank":0,"t":4,"values":{"loss":1}}\n')

    house.finish(house.start("jobs.runner.cleanup", PITWALL_LEAVE_SECONDS="0.2"))

    assert is_gone(orphan)
    assert [event["step"] for event in console.of_kind("metric")] == [1, 2]
    assert [number for number, _ in console.database] == list(range(1, len(console.database) + 1))
    assert console.terminal_event["state"] == "failed"
    assert console.terminal_event["cause"]["side"] == "cluster"
    assert "the runner was killed" in console.terminal_event["cause"]["text"]
    assert console.terminal_event["meta"]["processes_left"] == 0
    assert any(str(orphan) in text for text in console.terminal_event["meta"]["ended"])
    assert "logs.zip" in console.ready


@pytest.mark.proof
def test_cleanup_of_an_attempt_that_the_console_has_ended_already_is_let_in(house: House, console: FakeConsole) -> None:
    kill_runner(house, console)
    with console.condition:
        console.is_fenced = True

    house.finish(house.start("jobs.runner.cleanup", PITWALL_LEAVE_SECONDS="0.2"))

    assert console.terminal_event["meta"]["processes_left"] == 0


def test_cleanup_on_another_node_goes_on_with_the_number_that_the_console_expects(
    house: House, console: FakeConsole
) -> None:
    kill_runner(house, console)
    elsewhere = house.folder / "another-node"

    house.finish(house.start("jobs.runner.cleanup", PITWALL_RUN_ROOT=elsewhere, PITWALL_LEAVE_SECONDS="0.2"))

    assert [number for number, _ in console.database] == list(range(1, len(console.database) + 1))
    assert console.database[-1][1] == [console.terminal_event]
    assert console.terminal_event["state"] == "failed"
    assert not elsewhere.exists()


def test_cleanup_on_a_full_disk_gives_the_cleanup_report_all_the_same(
    house: House, console: FakeConsole, tiny_disk: Path
) -> None:
    house.run_root = tiny_disk
    (tiny_disk / console.run / f"a{console.attempt}").mkdir(parents=True)
    with (tiny_disk / "ballast").open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(1 << 12))
        except OSError:
            pass

    said = house.finish(house.start("jobs.runner.cleanup", PITWALL_LEAVE_SECONDS="0.2"))

    assert "No space left on device" in said
    assert console.terminal_event["state"] == "failed"
    assert console.terminal_event["meta"]["processes_left"] == 0


def test_a_runner_that_had_given_its_terminal_event_is_not_contradicted(house: House, console: FakeConsole) -> None:
    house.trainer("metric(1)\n")
    console.is_ingesting = False  # the terminal event never becomes durable
    runner = house.start()
    console.wait_for(lambda: any(e["role"] == "runner" and e["kind"] == "state" for _, es in console.redis for e in es))
    runner.kill()
    runner.wait()

    with console.condition:
        console.is_ingesting = True
    house.finish(house.start("jobs.runner.cleanup"))

    assert [event["state"] for event in console.of_kind("state", role="runner")] == ["finished"]
