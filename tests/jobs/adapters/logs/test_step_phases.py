"""Timelines of steps whose trainer tells only how long each phase took; on real logs of verl runs (tests/data)."""

import gzip
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from jobs.adapters.adapter import adapter
from jobs.adapters.logs.step_phases import step_spans
from jobs.catalog.spec.parse import parse_spec
from jobs.telemetry.run_progress import RunProgress
from profiling.events import EVENTS, to_line

SECOND = 10**9
LOGS = Path(__file__).parents[3] / "data" / "trainer_logs"
VALUES = {
    "time/step_seconds": 10.0,
    "time/rollout_seconds": 4.0,
    "time/values_seconds": 0.5,
    "time/old_logprobs_seconds": 1.0,
    "time/critic_update_seconds": 1.0,
    "time/update_seconds": 2.0,
    "time/eval_seconds": 3.0,
}


def placed(values: dict[str, float], *, step: int = 3, end: int = 100 * SECOND) -> list[tuple[str, str, float, float]]:
    spans = step_spans(values, step=step, end=end)
    return [(one["phase"], one["name"], one["start"] / SECOND, one["duration"] / SECOND) for one in spans]


def test_phases_lie_one_after_the_other_in_a_step_s_order_and_end_with_it() -> None:
    assert placed(VALUES) == [
        ("rollout", "", 88.5, 4.0),
        ("old_logprobs", "", 92.5, 1.0),
        ("old_logprobs", "values", 93.5, 0.5),
        ("update", "critic", 94.0, 1.0),
        ("update", "", 95.0, 2.0),
        ("eval", "", 97.0, 3.0),
    ]


@pytest.mark.parametrize(
    "values",
    [
        VALUES | {"time/rollout_seconds": 9.0},  # beside the training: nobody knows where
        {"time/step_seconds": 10.0},
        {"time/step_seconds": 10.0, "time/rollout_seconds": float("nan"), "time/update_seconds": -1.0},
        {"time/step_seconds": float("inf"), "time/rollout_seconds": float("inf")},
    ],
)
def test_what_cannot_be_placed_is_not_drawn(values: dict[str, float]) -> None:
    assert placed(values) == []
    assert placed(VALUES, step=0) == []


def test_a_timer_of_several_phases_is_a_detail_and_no_phase_of_its_own() -> None:
    spans = list(step_spans({"time/experience_seconds": 2.0, "time/rollout_seconds": 1.0}, step=1, end=9 * SECOND))

    assert [(one["phase"], one["depth"]) for one in spans] == [("rollout", 0), ("reward", 1)]


def test_spans_of_a_step_that_is_over_say_nothing_of_what_runs_now() -> None:
    progress = RunProgress(step=3, phase="", activity="", latest_values={}, next_phase={})

    for one in step_spans(VALUES, step=3, end=100 * SECOND):
        progress.see(one)

    assert (progress.phase, progress.previous_phase) == ("", "")


@pytest.mark.parametrize(
    ("name", "num_steps", "first"),
    [
        ("verl_grpo_game2048_10steps.log.gz", 9, 1),
        ("verl_file_logger_6steps.jsonl", 6, 1),
        ("verl_v01_console_excerpt.log", 1, 1),
    ],
)
def test_real_runs_of_verl_have_a_timeline_of_whole_steps(
    tmp_path: Path, name: str, num_steps: int, first: int
) -> None:
    events = read(tmp_path, name)
    spans = [one for one in events if one["kind"] == "span"]
    values = {one["step"]: one["values"] for one in events if one["kind"] == "metric"}

    assert sorted({one["step"] for one in spans}) == list(range(first, first + num_steps))
    starts = [one["start"] for one in spans if one["depth"] == 0]
    assert starts == sorted(starts)
    for one, following in pairwise(spans):
        assert one["start"] + one["duration"] <= following["start"] + 2
    for step in {one["step"] for one in spans}:
        covered = sum(one["duration"] for one in spans if one["step"] == step and one["phase"] != "eval") / SECOND
        whole = values[step].get("time/step_seconds", covered)
        assert 0.75 * whole <= covered <= 1.02 * whole


def test_names_and_units_of_verls_first_releases_are_todays(tmp_path: Path) -> None:
    events = read(tmp_path, "verl_v01_console_excerpt.log")
    values = next(one["values"] for one in events if one["kind"] == "metric" and one["step"] == 0)

    assert values["policy/learning_rate"] == pytest.approx(0.01e-4)
    assert values["value/learning_rate"] == pytest.approx(0.1e-4)
    assert values["time/rollout_seconds"] == 21.47


def read(run_dir: Path, name: str) -> list[Any]:
    """Return the events of a log, read as the runner reads one that it finds at its start."""
    path = LOGS / name
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    (run_dir / "log").mkdir()
    (run_dir / "log" / ("verl.jsonl" if ".jsonl" in name else "driver-0.stdout")).write_bytes(data)
    logs = adapter("verl").logs(spec=parse_spec({"trainer": {"name": "verl"}, "algorithm": "ppo"}), run_dir=run_dir)
    assert logs is not None
    events = [one for i in range(5) for one in logs.poll(now_ns=1_800_000_000 * SECOND + 3 * i * SECOND)]
    EVENTS.validate_json(b"[" + b",".join(to_line(one) for one in events) + b"]")
    return events
