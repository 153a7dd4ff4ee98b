"""Files of captures on their way to the console while the trainer runs, and the commands that come with the launch."""

import hashlib
import os

import pytest

from profiling.launch_nsys import problem_of_install
from tests.jobs.runner.conftest import House
from tests.jobs.runner.fake_console import FakeConsole

NAME = "cap1-policy-0.nsys-rep"
ANNOUNCE = """
def announce(size, is_kept=True):
    path = run_dir / "traces" / "cap1" / "policy-0.nsys-rep"
    path.parent.mkdir(parents=True)
    path.write_bytes(os.urandom(size))
    if not is_kept:
        path.unlink()
    meta = {"capture": "cap1", "role": "policy", "rank": 0}
    log.write(events.artifact("cap1-policy-0.nsys-rep", artifact="trace", path="traces/cap1/policy-0.nsys-rep",
                              attempt=attempt, step=2, size=size, meta=meta))
"""
STOP = {"number": 1, "verb": "stop", "payload": {}}


def test_a_capture_is_with_the_console_while_the_trainer_still_runs(house: House, console: FakeConsole) -> None:
    house.trainer(ANNOUNCE + "announce(5_000_000)\nwait_until(commands)\nsys.exit(10)\n")
    runner = house.start()

    console.wait_for(lambda: NAME in console.ready)
    assert runner.poll() is None
    with console.condition:
        console.commands.append(STOP)
    house.finish(runner)

    data = (house.run_dir / "traces" / "cap1" / "policy-0.nsys-rep").read_bytes()
    assert bytes(console.files[NAME]) == data  # as it is, in no zip
    assert console.about[NAME]["type"] == "trace"
    assert '"capture": "cap1"' in console.about[NAME]["meta"]
    assert sum(size for name, _, size in console.puts if name == NAME) == len(data)  # once, not again at the end
    assert not any(name.startswith("cap1") and name != NAME for name in console.files)


def test_what_is_left_when_the_trainer_ends_goes_on_at_the_same_byte(house: House, console: FakeConsole) -> None:
    house.trainer(ANNOUNCE + "announce(30_000_000)\nwait_until(commands)\nsys.exit(10)\n")
    runner = house.start()
    console.wait_for(lambda: len(console.files.get(NAME, b"")) > 0)
    with console.condition:
        console.commands.append(STOP)

    house.finish(runner)

    assert NAME in console.ready
    assert hashlib.sha256(console.files[NAME]).hexdigest() == console.about[NAME]["sha256"]
    offsets = [offset for name, offset, _ in console.puts if name == NAME]
    assert offsets == sorted(set(offsets))


def test_a_file_that_arrives_damaged_is_sent_again(house: House, console: FakeConsole) -> None:
    console.damage_next_put = True
    house.trainer(ANNOUNCE + "announce(2_000_000)\nwait_until(commands)\nsys.exit(10)\n")
    runner = house.start()

    console.wait_for(lambda: NAME in console.ready)
    with console.condition:
        console.commands.append(STOP)
    house.finish(runner)

    assert bytes(console.files[NAME]) == (house.run_dir / "traces" / "cap1" / "policy-0.nsys-rep").read_bytes()


def test_a_file_that_cannot_be_handed_over_fails_its_capture_and_not_the_run(
    house: House, console: FakeConsole
) -> None:
    house.trainer(ANNOUNCE + "announce(10, is_kept=False)\nwait_until(commands)\nsys.exit(10)\n")
    runner = house.start()

    console.wait_for(lambda: console.of_kind("capture"))
    with console.condition:
        console.commands.append(STOP)
    house.finish(runner)

    (failed,) = console.of_kind("capture")
    assert (failed["capture"], failed["state"]) == ("cap1", "failed")
    assert f"{NAME} could not be handed over" in failed["text"]
    assert console.terminal_event["state"] == "stopped"


def test_commands_that_come_with_the_launch_are_there_before_the_trainer(house: House, console: FakeConsole) -> None:
    payload = {"capture": "cap1", "tool": "torch", "first_step": 1, "num_steps": 2, "roles": [], "ranks": []}
    withdrawn = {"number": 5, "verb": "withdraw", "payload": {"capture": "cap1"}}  # before the trainer was there
    asked = {"number": 4, "verb": "profile", "payload": payload}
    console.commands = [asked, withdrawn]  # told again until they are answered
    house.trainer(
        "print(commands()[0]['payload'], flush=True)\nmetric(1)\nprint([c['verb'] for c in commands()], flush=True)\n"
    )

    house.finish(house.start())

    assert console.lines() == [str(payload), "['profile', 'withdraw']"]
    assert {"number": 4, "answer": {"accepted": True}} in console.answered
    assert {"number": 5, "answer": {"accepted": True}} in console.answered


def test_the_agent_of_an_nsys_session_is_ended_with_the_run(house: House, console: FakeConsole) -> None:
    if problem := problem_of_install():
        pytest.skip(f"needs nsys: {problem}")
    session = f"pitwall-test-{os.getpid()}"
    house.trainer(
        f"""
        import subprocess
        command = ["nsys", "launch", "-t", "nvtx", "--wait=primary"]
        launched = []
        def launch():
            mine = [*command, f"--session-new={session}-{{len(launched)}}", "sleep", "600"]
            launched.append(subprocess.Popen(mine, stdin=subprocess.DEVNULL, start_new_session=True))
        def listed():
            if launched[-1].poll() is not None and len(launched) < 3:
                launch()  # of many at one moment a few fail
            return "{session}" in subprocess.run(["nsys", "sessions", "list"], capture_output=True, text=True).stdout
        launch()
        wait_until(listed)
        """
    )

    house.finish(house.start(PITWALL_LEAVE_SECONDS="0.2"))

    assert any("--start-agent" in text for text in console.terminal_event["meta"]["ended"])
    assert console.terminal_event["meta"]["processes_left"] == 0
    assert house.marked() == []
