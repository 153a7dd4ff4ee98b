"""The driver's log tells a run in lines."""

import math

from jobs.engine.reporting.console_log import eval_line, step_line


def test_a_step_is_one_line() -> None:
    metrics = {"time/step_seconds": 1.14, "kl/reference": 0.0123, "reward/mean": 0.6512, "sync/bytes": 1e6}

    assert step_line(metrics, step=12, num_steps=60) == "step 12/60  reward 0.651  kl 0.0123  1.1 s"


def test_a_number_that_is_none_is_said_as_it_is() -> None:
    line = step_line({"time/step_seconds": 75.4, "loss/sft": math.nan}, step=1, num_steps=5)

    assert line == "step 1/5  loss nan  75 s"


def test_an_evaluation_is_one_line() -> None:
    line = eval_line({"eval/reward": 0.55, "eval/accuracy": 0.5}, step=20, seconds=1.24)

    assert line == "held-out at step 20  accuracy 0.5  reward 0.55  1.2 s"


def test_an_evaluation_names_its_sets_and_what_several_samples_say() -> None:
    line = eval_line({"eval/accuracy": 0.5, "eval/pass_at_4": 0.75, "eval/hard/reward": 0.1}, step=20, seconds=12)

    assert line == "held-out at step 20  accuracy 0.5  pass at 4 0.75  hard reward 0.1  12 s"
