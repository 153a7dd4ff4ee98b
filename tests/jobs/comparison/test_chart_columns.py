"""Charts of a comparison: spikes of fifty runs, one smoothed value at every zoom, resumed runs, and where they stop."""

import numpy as np
import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from jobs.comparison.chart_columns import ChartRequest, MetricLine, read_lines
from jobs.comparison.clock import ChartAxis
from jobs.ingest.compaction import append_points
from jobs.models import Attempt, Metric, Run
from jobs.telemetry.chunks import points
from jobs.telemetry.smoothing import parse_smoothing, smooth_values
from tests.rows import make_run

pytestmark = pytest.mark.django_db
LENGTH = 3000


def seal(run: Run, y: np.ndarray, *, name: str = "reward/mean", role: str = "driver", first: int = 1) -> Run:
    row, _ = Metric.objects.get_or_create(run=run, name=name, role=role)
    x = np.arange(first, first + len(y))
    append_points({row.pk: points(x, x, y)}, attempt=run.latest_attempt, through=0)
    Run.objects.filter(pk=run.pk).update(step=int(x[-1]))
    run.refresh_from_db()
    return run


def lines(runs: list[Run], **about: object) -> tuple[MetricLine, ...]:
    request = ChartRequest(num_columns=100, **about)  # type: ignore[arg-type]
    return read_lines(runs=runs, names=["reward/mean"], request=request).lines


def test_the_spikes_of_fifty_runs_are_there_and_take_no_more_statements() -> None:
    rng = np.random.default_rng(0)
    runs = []
    for i in range(50):
        y = rng.normal(size=LENGTH)
        y[i * 59 + 7] = 50.0
        runs.append(seal(make_run(), y))
    counts = []
    for some in (runs[:1], runs):
        with CaptureQueriesContext(connection) as queries:
            found = lines(some, smoothing=parse_smoothing("0.9"))
        counts.append(len(queries))

    assert counts[0] == counts[1] <= 8
    assert [line.run_id for line in found] == [run.pk for run in runs]
    for i, line in enumerate(found):
        (spike,) = np.flatnonzero(line.columns.high == 50.0)
        assert line.columns.column[spike] == (i * 59 + 8) * 100 // (LENGTH + 1 + 99)
        assert line.columns.smooth is not None
        assert line.columns.smooth.max() < 10.0


@pytest.mark.parametrize("text", ["0.97", "gaussian:9", "mean:33"])
def test_a_column_of_any_zoom_has_the_same_smoothed_value(text: str) -> None:
    y = np.random.default_rng(1).normal(size=LENGTH)
    run = seal(make_run(), y)
    smoothing = parse_smoothing(text)
    assert smoothing is not None
    truth = smooth_values(y, smoothing)

    for low, high in ((None, None), (500, 2500), (1200, 1290)):
        (line,) = lines([run], smoothing=smoothing, low=low, high=high)
        start, end = (low or 0), high or LENGTH
        width = -(-(end - start + 1) // 100)
        last = np.minimum(start + (line.columns.column + 1) * width - 1, end)
        assert line.columns.smooth is not None
        assert np.abs(line.columns.smooth - truth[last - 1]).max() < 1e-6


def test_a_resumed_run_is_its_clean_history_of_the_drivers_lane() -> None:
    run = seal(make_run(), np.full(30, 1.0))
    seal(run, np.full(30, 7.0), role="policy")
    Attempt.objects.create(run=run, number=2, submission_id="second", resume_attempt=1, resume_step=10)
    Run.objects.filter(pk=run.pk).update(latest_attempt=2)
    run.refresh_from_db()
    seal(run, np.full(15, 2.0), first=11)

    (line,) = lines([run])

    assert (line.role, line.columns.of) == ("driver", 25)
    assert line.columns.y.tolist() == [1.0] * 10 + [2.0] * 15


def test_seconds_of_training_are_columns_too() -> None:
    run = seal(make_run(), np.arange(1000.0))
    seal(run, np.full(1000, 0.5), name="time/step_seconds")

    found = read_lines(
        runs=[run], names=["reward/mean"], request=ChartRequest(num_columns=100, axis="time", low=100.0, high=200.0)
    )

    assert (found.grid.low, found.grid.width, found.lines[0].columns.of) == (100.0, 1.0, 201)
    assert found.lines[0].columns.high.max() == 399.0  # step 400 ended after 200 seconds


def test_tokens_and_gpu_hours_are_columns_too() -> None:
    run, on_cpus = seal(make_run(), np.arange(100.0)), seal(make_run(), np.arange(100.0))
    for name, value in (
        ("time/step_seconds", 72.0),
        ("time/update_seconds", 2.0),
        ("throughput/update_tokens_per_second", 500.0),
    ):
        seal(run, np.full(100, value), name=name)
    Attempt.objects.filter(run=run).update(num_gpus=4)

    def end(axis: ChartAxis) -> list[tuple[float, int]]:
        request = ChartRequest(num_columns=100, axis=axis)
        found = read_lines(runs=[run, on_cpus], names=["reward/mean"], request=request)
        return [(found.grid.low + 100 * found.grid.width, line.columns.of) for line in found.lines]

    assert end("tokens") == [(pytest.approx(100_000), 100), (pytest.approx(100_000), 0)]
    assert end("gpu_hours") == [(pytest.approx(8), 100), (pytest.approx(8), 0)]


def test_nobody_waiting_ends_the_work() -> None:
    run = seal(make_run(), np.arange(10.0))

    def gone() -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        lines([run], check=gone)
