"""The verdict on a demo run: learned, or not."""

import math
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from django.core.management import call_command

from console.embedded.process_tree import parent_of
from console.embedded.smoke import LearningResult, evaluate, table
from tests.waiting import wait_until


def columns(rewards: list[float], accuracies: dict[int, float]) -> dict[str, dict[int, float]]:
    return {"reward/mean": dict(enumerate(rewards, start=1)), "eval/accuracy": accuracies}


def test_a_run_that_learned_passes() -> None:
    verdict = evaluate(columns([0.36] * 40 + [0.93] * 20, {0: 0.41, 60: 0.97}))
    assert verdict == LearningResult(reward=pytest.approx(0.93), accuracy=0.97)
    assert verdict.is_good


def test_a_run_that_learned_nothing_fails() -> None:
    verdict = evaluate(columns([0.36] * 60, {0: 0.41, 60: 0.41}))
    assert not verdict.is_good
    assert "0.360 (needs 0.85)" in str(verdict)


@pytest.mark.parametrize(
    ("rewards", "accuracies"),
    [
        ([0.93] * 60, {0: 0.41, 60: 0.89}),  # the reward alone is not enough
        ([0.36] * 41 + [0.84] * 19 + [0.99], {60: 0.97}),  # nor the accuracy
        ([0.99] * 19, {19: 0.97}),  # too short to judge
        ([0.93] * 60, {}),  # never evaluated
        ([], {}),
    ],
)
def test_half_a_success_fails(rewards: list[float], accuracies: dict[int, float]) -> None:
    assert not evaluate(columns(rewards, accuracies)).is_good


def test_the_newest_evaluation_counts() -> None:
    assert evaluate(columns([0.93] * 60, {60: 0.5, 0: 0.99})).accuracy == 0.5


def test_a_number_that_is_no_number_fails() -> None:
    assert not evaluate(columns([math.nan] * 60, {60: 0.97})).is_good


def test_the_table_covers_every_step_and_shows_gaps_as_gaps() -> None:
    text = table(columns([0.5] * 60, {0: 0.4, 30: 0.8, 60: 0.9}))
    lines = text.splitlines()
    assert len(lines) == 13
    assert lines[1].split()[:3] == ["1-5", "0.500", "—"]
    assert lines[-1].split()[:3] == ["56-60", "0.500", "0.900"]


@pytest.mark.parametrize(("reward", "code", "said"), [(0.93, 0, "PASS: mean reward"), (0.36, 1, "FAIL: mean reward")])
def test_the_exit_code_is_the_verdict(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], reward: float, code: int, said: str
) -> None:
    command = "console.management.commands.smoke"
    monkeypatch.setattr(f"{command}.leave_when_told", lambda: None)  # this process is pytest's
    monkeypatch.setattr(f"{command}.run_demo", lambda *_, **__: "r-1")
    monkeypatch.setattr(f"{command}.read_columns", lambda _: columns([reward] * 20, {20: 0.97}))
    monkeypatch.setattr(f"{command}.summary", lambda run_id, _: run_id)

    with pytest.raises(SystemExit) as ended:
        call_command("smoke", "--here")

    assert ended.value.code == code
    assert said in capsys.readouterr().out


_SMOKE = """
import pathlib, sys, time
from console.embedded import smoke
smoke.MANAGE = sys.argv[1]
smoke._wait_for_end = lambda *_, **__: time.sleep(60)
smoke.leave_when_told()
smoke.run_demo(pathlib.Path(sys.argv[2]), changes=[], seconds=60, say=lambda text: print(text, flush=True))
"""
_CONSOLE = """
import os, pathlib, time
pathlib.Path(__file__).with_suffix(".pid").write_text(str(os.getpid()))
print("The demo run is queued: http://127.0.0.1/runs/r-1", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_the_console_ends_with_the_smoke_test_that_started_it(tmp_path: Path, number: signal.Signals) -> None:
    console = tmp_path / "console.py"
    console.write_text(_CONSOLE)
    command = [sys.executable, "-c", _SMOKE, str(console), str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as smoke:
        assert smoke.stdout is not None
        assert "r-1" in smoke.stdout.readline()
        pid = int(console.with_suffix(".pid").read_text())
        smoke.send_signal(number)

    assert smoke.returncode == (128 + number if number == signal.SIGTERM else -number)
    wait_until(lambda: parent_of(pid) is None, seconds=20, what="the console goes on")
