"""Another trainer that makes no progress is looked at from outside, once; with a clock of the test's own."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

from jobs.runner import hang_watch as module
from jobs.runner.hang_watch import OutsideWatch, dump
from tests.waiting import wait_until

PY_SPY = Path(sys.executable).with_name("py-spy")
STACK = {"MainThread": ("main (a.py:1)", "all_reduce (b.py:2)")}


class Stage:
    """A watch over two processes, of which one may not be read."""

    def __init__(self, run_dir: Path, monkeypatch: pytest.MonkeyPatch, *, silent: int = 0) -> None:
        self.now, self.silent, self.step = 1000.0, silent, 0
        self.lines: list[str] = []
        self.notes: list[tuple[str, Mapping[str, Any]]] = []
        self.log = run_dir / "log" / "driver-0.stdout"
        self.log.parent.mkdir()
        monkeypatch.setattr(module, "dump", self._dump)
        monkeypatch.setattr(module, "_is_python", lambda process: True)
        monkeypatch.setattr(module, "_name", lambda process: f"WorkerDict {process.pid}")
        processes: Any = [psutil.Process(), psutil.Process(1)]
        self.pids = [process.pid for process in processes]
        self.watch = OutsideWatch(run_dir=run_dir, report=self, processes=lambda: processes, clock=lambda: self.now)

    def say(self, text: str) -> None:
        self.lines += text.splitlines()

    def note(self, text: str, meta: Mapping[str, Any]) -> None:
        self.notes.append((text, meta))

    def _dump(self, pid: int, *, program: Path) -> Any:
        if pid == self.silent:
            raise ValueError("Permission Denied: the container needs SYS_PTRACE")
        return STACK

    def after(self, seconds: float, *, step: int | None = None, prints: bool = False) -> None:
        end = self.now + seconds
        self.step = self.step if step is None else step
        while self.now < end:  # it looks every 5 s
            self.now = min(end, self.now + 5)
            if prints:
                with self.log.open("a") as file:
                    file.write("still here\n")
            self.watch.look_if_due(step=self.step)
        self.watch.wait(10)


def test_no_step_and_nothing_printed_is_reported_once_until_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(tmp_path, monkeypatch)
    for step in (1, 2, 3):
        stage.after(100, step=step)
    stage.after(300)
    assert stage.notes == []
    stage.after(600)
    ((text, meta),) = stage.notes
    assert text.endswith("after step 3: stacks of all processes are in the runner's log")
    assert meta["hang"]["stacks"][0]["stack"] == list(STACK["MainThread"])
    assert sorted(meta["hang"]["stacks"][0]["where"]) == sorted(f"WorkerDict {pid}" for pid in stage.pids)
    assert "    all_reduce (b.py:2)" in stage.lines
    stage.after(5, step=4)
    assert stage.notes[-1][0].startswith("The run goes on after ")
    stage.after(100)
    assert len(stage.notes) == 2


def test_a_trainer_that_goes_on_printing_has_four_times_as_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(tmp_path, monkeypatch)
    stage.after(3500, prints=True)  # before the first step, which may take 15 min
    assert stage.notes == []
    stage.after(150, prints=True)
    assert len(stage.notes) == 1


def test_a_process_that_cannot_be_read_is_named_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(tmp_path, monkeypatch, silent=1)
    stage.after(1000)
    assert stage.notes[0][1]["hang"]["silent"] == ["WorkerDict 1 (Permission Denied: the container needs SYS_PTRACE)"]


@pytest.mark.skipif(not PY_SPY.exists(), reason="py-spy is not installed")
def test_the_stacks_of_a_real_process_are_read_from_outside() -> None:
    waits = "    print('here', flush=True)\n    threading.Event().wait()\n"
    code = f"import threading\ndef wait_for_peers():\n{waits}wait_for_peers()"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        process.stdout.readline()

        def stack() -> str:
            try:
                return " ".join(dump(process.pid, program=PY_SPY)["MainThread"])
            except ValueError as error:
                if "ermission" in str(error):
                    pytest.skip(f"py-spy may not look at other processes here: {error}")
                raise

        wait_until(lambda: "wait_for_peers (<string>:4)" in stack(), 30)
        assert stack().index("<module>") < stack().index("wait_for_peers")
        psutil.Process(process.pid).suspend()
        wait_until(lambda: psutil.Process(process.pid).status() == psutil.STATUS_STOPPED, 30)
        assert "wait_for_peers (<string>:4)" in stack(), "py-spy cannot stop what stands still, and need not"
    finally:
        process.kill()
        process.wait()
        process.stdout.close() if process.stdout else None
    with pytest.raises(ValueError, match=r"."):
        dump(process.pid, program=PY_SPY)
