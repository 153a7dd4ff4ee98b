"""TRL's times of the parts of a step: how a launch has them written, and how they become a rollout's phases."""

import json
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from jobs.adapters.trl.live import on_timers
from jobs.adapters.trl.timers import FILE, TrlTimers
from jobs.catalog.spec.parse import parse_spec

ROLLOUT = [
    ("sync_weights", 0.5),
    ("transformers.generate", 3.0),
    ("math_reward", 0.9),
    ("_calculate_rewards", 1.0),
    ("_get_per_token_logps_and_entropies", 0.25),
    ("_get_per_token_logps_and_entropies", 0.75),
    ("_prepare_inputs", 6.0),
]
LOSS = [("_get_per_token_logps_and_entropies", 0.4), ("compute_loss", 0.5)]
REST = [("_prepare_inputs", 0.0)]


def written(run_dir: Path, *rows: tuple[int, list[tuple[str, float]]], is_evaluation: bool = False) -> None:
    """Write what was timed after so many optimizer steps."""
    path = run_dir / FILE
    path.parent.mkdir(exist_ok=True)
    with path.open("a") as file:
        for step, times in rows:
            for name, seconds in times:
                line = {"name": f"RLOOTrainer.{name}", "seconds": seconds, "step": step, "eval": is_evaluation}
                file.write(json.dumps(line) + "\n")


def timers_of(run_dir: Path, **knobs: Any) -> TrlTimers:
    return TrlTimers(
        spec=parse_spec({"algorithm": "rloo", "trainer": {"name": "trl"}, "knobs": knobs}), run_dir=run_dir
    )


def test_a_rollout_of_two_updates_has_the_times_of_its_parts(tmp_path: Path) -> None:
    timers = timers_of(tmp_path, **{"train.updates_per_rollout": 2, "algorithm.kl_coefficient": 0.05})
    written(tmp_path, (0, [*ROLLOUT, *LOSS]), (1, [*REST, *LOSS]))
    written(tmp_path, (2, ROLLOUT), is_evaluation=True)

    # step_time is the mean of the two optimizer steps
    assert timers.seconds(1, {"train/step_time": 5.0}) == {
        "profiling/generate": 3.0,
        "profiling/old_logps": 0.25,
        "profiling/ref_logps": 0.75,
        "profiling/rewards": 1.0,
        "profiling/sync_weights": 0.5,
        "profiling/update": 4.0,
    }


def test_without_a_reference_log_probs_are_the_old_ones_and_a_step_told_later_has_the_mean(tmp_path: Path) -> None:
    timers = timers_of(tmp_path, **{"algorithm.kl_coefficient": 0.0})
    written(tmp_path, (0, [*ROLLOUT, *LOSS]), (1, [("transformers.generate", 5.0), ("_prepare_inputs", 6.0), *LOSS]))

    found = timers.seconds(2, {"train/step_time": 8.0})

    assert (found["profiling/generate"], found["profiling/old_logps"], found["profiling/update"]) == (4.0, 0.5, 2.0)
    assert "profiling/ref_logps" not in found
    assert timers.seconds(2, {"train/step_time": 8.0}) == found, "asked again with what was told of it since"
    assert timers.seconds(2, {"train/epoch": 1.0}) == {}, "an evaluation told after it has no phases of the step"
    assert timers.seconds(3, {"train/step_time": 8.0}) == {}, "nothing was timed, so nothing is said of an update"


@pytest.mark.parametrize("line", ["", "nonsense", "[]", '{"name": 1}', '{"name": "a.b", "seconds": "x", "step": 1}'])
def test_a_line_that_makes_no_sense_is_passed_over(line: str, tmp_path: Path) -> None:
    timers = timers_of(tmp_path)
    written(tmp_path)
    (tmp_path / FILE).write_text(f"{line}\n")

    assert timers.seconds(1, {"train/step_time": 1.0}) == {}


def test_each_time_is_written_before_it_is_sent_where_trl_sends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = []

    class ProfilingContext:
        def __init__(self, name: str) -> None:
            self.name, self.step, self.is_main_process = name, 3, True

        def _log_metrics(self, duration: float) -> None:
            sent.append(duration)

    module: Any = ModuleType("profiling")
    module.ProfilingContext = ProfilingContext
    module.profiling_context = lambda trainer, name: ProfilingContext(f"{trainer.name}.{name}")
    monkeypatch.setattr(on_timers, "FILE", tmp_path / FILE)

    on_timers.change(module)
    trainer = SimpleNamespace(name="GRPOTrainer", model=SimpleNamespace(training=True))
    module.profiling_context(trainer, "sync_weights")._log_metrics(1.5)

    line = {"name": "GRPOTrainer.sync_weights", "seconds": 1.5, "step": 3, "eval": False}
    assert json.loads((tmp_path / FILE).read_text()) == line
    assert sent == [1.5]
