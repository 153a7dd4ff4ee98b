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
