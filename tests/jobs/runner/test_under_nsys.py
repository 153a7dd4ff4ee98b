"""Another trainer that is started so that nsys can record it: signals and exit codes as without, and a report."""

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from jobs.adapters.launching import Launch
from jobs.runner.trainer import TrainerProcess, start
from profiling.launch_nsys import problem_of_install
from tests.jobs.runner.conftest import House
from tests.jobs.runner.fake_console import FakeConsole
from tests.jobs.runner.test_other_trainers import OtherTrainer, other, steps_of  # noqa: F401 (a fixture)
from tests.jobs.runner.test_recording_others import TRAINS, ask, is_there, profile, states, why_failed
from tests.waiting import wait_until

needs_nsys = pytest.mark.skipif(bool(problem_of_install()), reason="needs nsys")
PROGRAM = """
import signal, sys, time
from pathlib import Path
def save(number, frame):
    Path("saved").touch()
    sys.exit(7)
signal.signal(signal.SIGTERM, save)
Path("there").touch()
time.sleep(600)
"""


@pytest.fixture
def trainer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TrainerProcess]:
    monkeypatch.setattr("jobs.runner.trainer.adopt_orphans", lambda: None)  # it would stay so for all tests after this
    launch = Launch(argv=(sys.executable, "-c", PROGRAM))
    environ = {"PATH": "/usr/local/bin:/usr/bin:/bin"}
    started = start(launch=launch, run_dir=tmp_path, environ=environ, working_dir=tmp_path, nsys_trace="nvtx")
    wait_until((tmp_path / "there").exists, 60)
    session = psutil.Process(int((tmp_path / "trainer.pid").read_text())).environ()["PITWALL_NSYS_SESSION"]
    yield started
    started.kill()
    started.wait(30)
    for process in psutil.process_iter(["cmdline"]):  # nsys's agent, which the clean-up of a run ends
        if f"--session-name={session}" in (process.info["cmdline"] or ()):
            process.kill()


@needs_nsys
@pytest.mark.slow("nsys starts")
def test_a_trainer_under_nsys_is_asked_to_end_and_its_exit_code_is_its_own(
    trainer: TrainerProcess, tmp_path: Path
) -> None:
    own = int((tmp_path / "trainer.pid").read_text())
    trainer.terminate()
    trainer.wait(60)

    ended = trainer.poll()
    assert ended is not None
    assert ended.code == 7
    assert (tmp_path / "saved").exists()
    assert own != trainer.pid


@needs_nsys
@pytest.mark.slow("nsys starts")
def test_a_trainer_under_nsys_is_killed(trainer: TrainerProcess, tmp_path: Path) -> None:
    own = psutil.Process(int((tmp_path / "trainer.pid").read_text()))

    trainer.kill()
    trainer.wait(60)

    ended = trainer.poll()
    assert ended is not None
    assert ended.signal_name == signal.SIGKILL.name
    wait_until(lambda: not own.is_running() or own.status() == psutil.STATUS_ZOMBIE, 30)


@needs_nsys
@pytest.mark.slow("a run of another trainer's kind under nsys")
def test_a_run_that_asks_for_nsys_is_recorded_with_it(
    other: OtherTrainer,  # noqa: F811
    house: House,
    console: FakeConsole,
) -> None:
    console.spec = {**console.spec, "profile": {"what": "timing", "tool": "nsys", "first_step": 2}}
    other.is_("train(1)\nwriter.flush()\n" + TRAINS + "until('end')\ntrain(2)\nwriter.close()\n")
    runner = other.start()
    console.wait_for(lambda: is_there(console))

    ask(console, profile(1, seconds=60, tool="nsys"))
    console.wait_for(lambda: states(console)[-1:] in (["recording"], ["failed"]))
    ask(console, {"number": 2, "verb": "finish", "payload": {"capture": "c-1"}})
    console.wait_for(lambda: "c-1-policy-0.nsys-rep" in console.ready or "failed" in states(console))
    (house.run_dir / "end").touch()
    house.finish(runner)

    assert why_failed(console) == {}
    assert len(console.files["c-1-policy-0.nsys-rep"]) > 1000
    assert console.terminal_event["state"] == "finished"
    assert console.terminal_event["meta"]["processes_left"] == 0
    assert steps_of(console) == [1, 2]
