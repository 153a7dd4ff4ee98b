"""X axes: where a run's steps stand in training time, tokens, samples and GPU hours, by what it measured."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from jobs.comparison.axis import AxisName, StepAxis, axes_of
from jobs.ingest.compaction import append_points
from jobs.models import Attempt, Metric, Run
from jobs.telemetry.chunks import points
from tests.rows import make_run

pytestmark = pytest.mark.django_db


def measured(values: Mapping[str, Sequence[float]], *, gpus: float = 0.0) -> Run:
    """Return a run whose first steps have these values."""
    run = make_run()
    Attempt.objects.filter(run=run).update(num_gpus=gpus)
    report(run, values, first=1)
    return run


def report(run: Run, values: Mapping[str, Sequence[float]], *, first: int) -> None:
    for name, y in values.items():
        row, _ = Metric.objects.get_or_create(run=run, name=name)
        x = np.arange(first, first + len(y))
        append_points({row.pk: points(x, x, y)}, attempt=run.latest_attempt, through=0)


def places(run: Run, axis: AxisName, steps: Sequence[int]) -> list[float]:
    found = axes_of(run_ids=[run.pk], axis=axis)[run.pk](np.array(steps))
    return [round(float(place), 9) for place in found]


def test_training_time_is_the_sum_of_the_steps() -> None:
    run = measured({"time/step_seconds": [1.0, 2.0, math.nan, 4.0]})

    assert places(run, "time", [0, 1, 2, 3, 4]) == [0.0, 1.0, 3.0, 3.0, 7.0]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"train/tokens": [10, 20, 5], "train/tokens_seen": [1, 2, 3]}, [10, 30, 35]),
        ({"train/tokens_seen": [100, 250, 240]}, [100, 250, 250]),
        ({"throughput/update_tokens_per_second": [50, 100, 10], "time/update_seconds": [2, 1, 3]}, [100, 200, 230]),
    ],
)
def test_tokens_are_those_that_the_run_told_best(
    values: Mapping[str, Sequence[float]], expected: Sequence[float]
) -> None:
    run = measured(values)

    assert places(run, "tokens", [1, 2, 3]) == expected


def test_gpu_hours_are_those_of_the_attempt_that_did_the_step() -> None:
    run = measured({"time/step_seconds": [1800.0] * 4}, gpus=2.0)
    Attempt.objects.create(run=run, number=2, submission_id="second", resume_attempt=1, resume_step=2, num_gpus=8.0)
    Run.objects.filter(pk=run.pk).update(latest_attempt=2)
    run.refresh_from_db()
    report(run, {"time/step_seconds": [900.0, 900.0]}, first=3)

    assert places(run, "gpu_hours", [1, 2, 3, 4]) == [1.0, 2.0, 4.0, 6.0]


@pytest.mark.parametrize("axis", ["time", "tokens", "samples", "gpu_hours"])
def test_a_run_that_has_not_measured_an_axis_has_none(axis: AxisName) -> None:
    run = measured({"reward/mean": [1.0], "throughput/update_tokens_per_second": [50]})
    found = axes_of(run_ids=[run.pk], axis=axis)[run.pk]

    assert not found.is_known
    assert np.isnan(found(np.array([1]))).all()


def test_of_a_long_axis_both_ends_stay() -> None:
    axis = StepAxis(steps=np.arange(1, 10_001), places=np.arange(1, 10_001) * 2.0)
    thin = axis.thinned(100)

    assert (len(thin.steps), thin.steps[0], thin.steps[-1]) == (100, 1, 10_000)
    assert thin(np.array([777])).tolist() == [1554.0]
