"""How far a run is, read off its events."""

from typing import Any

from jobs.telemetry.run_progress import MAX_LATEST_VALUES, RunProgress


def fresh(**fields: Any) -> RunProgress:
    start: dict[str, Any] = {"step": 0, "phase": "", "activity": "", "latest_values": {}, "next_phase": {}}
    return RunProgress(**(start | fields))


def span(phase: str, *, role: str = "driver", depth: int = 0, **more: int) -> dict[str, Any]:
    about = {"kind": "span", "role": role, "rank": 0, "phase": phase, "depth": depth, "step": 1, "duration": 10**9}
    return about | more


def test_what_runs_now_is_what_followed_in_the_step_before() -> None:
    progress = fresh()
    for phase in ("rollout", "reward", "update", "rollout"):
        progress.see(span(phase))

    assert progress.phase == "reward"


def test_in_the_first_step_nobody_knows_what_runs() -> None:
    progress = fresh()
    progress.see(span("rollout"))

    assert progress.phase == ""


def test_only_outermost_spans_of_the_driver_and_the_first_trainer_say_anything_about_the_run() -> None:
    progress = fresh(next_phase={"rollout": "reward", "update": "weight_sync"})
    progress.see(span("rollout"))
    progress.see(span("update", role="reward"))
    progress.see(span("update", role="policy", rank=1))
    progress.see(span("update", depth=1))

    assert progress.phase == "reward"


def test_within_a_step_the_first_trainer_says_what_is_over() -> None:
    progress = fresh(step=1)
    for phase in ("rollout", "update", "rollout"):
        progress.see(span(phase))
    progress.see(span("rollout", role="policy", step=2))
    assert progress.phase == "update"

    progress.see(span("update", role="policy", step=2))
    assert progress.phase == "rollout"
    progress.see(span("rollout", role="policy", step=1))  # which came late
    assert progress.phase == "rollout"


def test_a_phase_that_nobody_could_see_is_not_what_runs_now() -> None:
    progress = fresh()
    for _ in range(2):
        progress.see(span("data_wait", duration=40_000))
        progress.see(span("rollout"))
        progress.see(span("update"))

    assert progress.phase == "rollout"


def test_metrics_move_the_step_forward_never_back_and_keep_the_newest_values() -> None:
    progress = fresh()
    for step, reward in ((1, 0.1), (3, 0.3), (2, 0.2)):
        progress.see({"kind": "metric", "role": "driver", "step": step, "values": {"reward/mean": reward}})

    assert (progress.step, progress.latest_values, progress.is_training) == (3, {"reward/mean": 0.2}, True)


def test_a_trainer_that_reports_too_many_names_does_not_grow_the_row() -> None:
    progress = fresh()
    values = {f"my/{i}": float(i) for i in range(2 * MAX_LATEST_VALUES)}
    progress.see({"kind": "metric", "role": "driver", "step": 1, "values": values})

    assert len(progress.latest_values) == MAX_LATEST_VALUES


def test_a_state_names_its_phase_and_takes_it_back() -> None:
    progress = fresh()
    progress.see({"kind": "state", "role": "driver", "state": "loading", "text": "loading the model"})
    loading = (progress.phase, progress.activity, progress.is_training)
    progress.see({"kind": "state", "role": "driver", "state": "training"})

    assert loading == ("load", "loading the model", False)
    assert (progress.phase, progress.activity, progress.is_training) == ("", "", True)


def test_a_trainer_whose_data_decide_tells_how_many_steps_there_will_be() -> None:
    progress = fresh()
    for said in ({}, {"num_steps": "many"}, {"num_steps": -1}, {"num_steps": 57}):
        progress.see({"kind": "note", "role": "driver", "text": "", "meta": said})

    assert progress.num_steps == 57
