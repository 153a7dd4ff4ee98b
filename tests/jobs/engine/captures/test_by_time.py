"""Captures by time, on the driver's side: what the watching thread does at each look, between or within steps."""

from pathlib import Path
from typing import Any

import pytest

from jobs.engine import captures as captures_module
from tests.jobs.engine.captures.test_captures import FakeActor, Stage
from tests.jobs.engine.captures.test_captures import _no_ray as _no_ray  # used by every test


def test_a_recording_by_time_begins_within_a_step_and_lasts_until_it_is_ended(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.captures.before_step(4)
    stage.ask("a", seconds=60)
    stage.captures._act()
    assert stage.report.states("a") == ["armed", "recording"]
    stage.captures._act()
    stage.captures.after_step(4, seconds=1.0)
    stage.captures.before_step(5)
    assert stage.report.states("a") == ["armed", "recording"]

    stage.end("another", "a")
    stage.captures._act()
    stage.captures.after_step(5, seconds=1.0)
    stage.captures.finish(5)

    assert stage.report.states("a") == ["armed", "recording", "stopping", "writing", "importing"]
    assert {(about["first_step"], about["num_steps"]) for _, about in stage.report.artifacts} == {(4, 2)}


def test_a_recording_by_time_ends_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(captures_module.time, "monotonic", lambda: now)
    stage = Stage(tmp_path)
    stage.captures.before_step(1)
    stage.ask("a", seconds=2.5)
    stage.captures._act()
    now = 102.4
    stage.captures._act()
    assert stage.report.states("a")[-1] == "recording"
    now = 102.5
    stage.captures._act()
    assert "stopping" in stage.report.states("a")


def test_of_two_recordings_at_once_the_second_is_refused_whatever_they_are(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.captures.before_step(1)
    stage.ask("a", seconds=60)
    stage.captures._act()
    stage.ask("b", seconds=60)
    stage.captures._act()
    stage.ask("c", first_step=2)
    stage.captures.after_step(1, seconds=1.0)
    stage.captures.before_step(2)

    assert stage.report.text("b") == "Capture a records already. Record once it has ended."
    assert stage.report.text("c") == "Capture a records already."
    assert stage.report.states("a")[-1] == "recording"


def test_a_recording_by_time_waits_for_no_step_boundary(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.ask("a", first_step=2, num_steps=1)
    stage.captures.before_step(1)
    stage.captures.after_step(1, seconds=1.0)
    stage.captures.before_step(2)
    stage.ask("b", seconds=60)
    stage.captures._act()
    assert stage.report.text("b") == "Capture a records step 2. Record once it has ended."


def test_the_end_of_the_run_ends_a_recording_by_time(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.captures.before_step(3)
    stage.ask("a", seconds=60)
    stage.captures._act()
    stage.captures.after_step(3, seconds=1.0)
    stage.captures.finish(3)
    stage.captures._act()  # a look that was under way finds nothing more to do

    assert stage.report.states("a") == ["armed", "recording", "stopping", "writing", "importing"]


@pytest.mark.parametrize("seconds", [-1, 301, True, "5", float("nan")])
def test_a_length_that_no_recording_has_is_refused(tmp_path: Path, seconds: Any) -> None:
    stage = Stage(tmp_path)
    stage.ask("a", seconds=seconds)
    stage.steps(1)
    stage.captures._act()
    assert stage.report.states("a") == ["failed"]
    assert "seconds is" in stage.report.text("a")


def test_an_end_that_comes_before_the_beginning_is_kept(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.captures.before_step(1)
    stage.ask("a", seconds=60)
    stage.end("a")
    stage.captures._act()
    assert stage.report.states("a") == ["armed", "withdrawn"]
    assert "start_recording" not in stage.actors["policy_0"].said


def test_a_worker_that_did_not_answer_is_told_to_stop_in_case_it_begins_later(tmp_path: Path) -> None:
    stage = Stage(tmp_path, policy_1=FakeActor("policy-1", start_recording=TimeoutError()))
    stage.captures.before_step(1)
    stage.ask("a", seconds=60)
    stage.captures._act()
    assert stage.actors["policy_1"].said == ["start_recording", "stop_recording"]
    assert stage.report.states("a")[-1] == "recording"
