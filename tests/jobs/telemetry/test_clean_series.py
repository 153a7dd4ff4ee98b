"""One clean line over attempts, before and after compaction, at every level, in every window."""

from collections.abc import Iterable, Sequence

import numpy as np
import pytest

from jobs.ingest.compaction import append_points, compact
from jobs.ingest.store import AttemptCache, store
from jobs.models import Attempt, Metric, Run
from jobs.runs.header import run_header
from jobs.runs.sparklines import sparklines
from jobs.telemetry.chunks import points
from jobs.telemetry.clean_series import read_clean
from jobs.telemetry.series import Series, SeriesWindow
from jobs.telemetry.smoothing import Smoothing
from profiling import events as make
from tests.batches import T0, delivery, metric
from tests.rows import NOW, make_run

pytestmark = pytest.mark.django_db


def begin(run: Run, number: int, origin: tuple[int, int] | None) -> None:
    """Make the run's next attempt, as if the one before had ended."""
    attempt, step = origin or (None, 0)
    Attempt.objects.create(
        run=run, number=number, submission_id=f"{run.pk}-{number}", resume_attempt=attempt, resume_step=step
    )
    Run.objects.filter(pk=run.pk).update(latest_attempt=number)


def train(run: Run, attempt: int, steps: Iterable[int], *, plus: float, role: str = "driver") -> None:
    """Let an attempt report a loss of step + `plus` at each of these steps, one batch a step."""
    memory = AttemptCache()
    for batch, step in enumerate(steps, start=1):
        event = metric(step, attempt=attempt, role=role, loss=step + plus)
        store([delivery(run.pk, batch, [event], attempt=attempt)], memory=memory, now=NOW)


def line(found: Sequence[Series]) -> dict[int, float]:
    """Return step -> value of the only series; fails where a step stands twice."""
    (only,) = found
    assert len(set(only.x.tolist())) == only.n
    return dict(zip(only.x.tolist(), only.y.tolist(), strict=True))


@pytest.mark.parametrize("compact_through", [0, 7, 12, 14])
def test_three_attempts_are_one_line(compact_through: int) -> None:
    run = make_run(state="running")
    train(run, 1, range(1, 8), plus=0.1)  # died after 7, saved 4
    begin(run, 2, (1, 4))
    train(run, 2, [4, 5, 6, 7, 8], plus=0.2)  # says step 4 once more; saved 6
    begin(run, 3, (2, 6))
    train(run, 3, [7, 8], plus=0.3)
    if compact_through:
        compact(run_id=run.pk, limit=compact_through)

    answer = read_clean(run_id=run.pk, names=["loss"])

    assert line(answer.series) == pytest.approx({1: 1.1, 2: 2.1, 3: 3.1, 4: 4.2, 5: 5.2, 6: 6.2, 7: 7.3, 8: 8.3})
    assert answer.series[0].attempt == 3
    assert answer.through_seq == 14


def test_a_restart_from_nothing_leaves_nothing_of_what_was() -> None:
    run = make_run(state="running")
    train(run, 1, range(6), plus=0.1)
    begin(run, 2, None)

    assert read_clean(run_id=run.pk, names=["loss"]).series == ()

    train(run, 2, [1, 2], plus=0.2)

    assert line(read_clean(run_id=run.pk, names=["loss"]).series) == pytest.approx({1: 1.2, 2: 2.2})


def test_at_the_restored_step_each_series_keeps_what_it_has() -> None:
    run = make_run(state="running")
    train(run, 1, [1, 2, 3], plus=0.1)
    Attempt.objects.filter(run=run, number=1).update(durable_batch=0)
    train(run, 1, [1, 2, 3], plus=0.5, role="policy")
    begin(run, 2, (1, 2))
    train(run, 2, [2, 3], plus=0.2)  # of the driver alone

    found = {s.role: s for s in read_clean(run_id=run.pk, names=["loss"]).series}

    assert line([found["driver"]]) == pytest.approx({1: 1.1, 2: 2.2, 3: 3.2})
    assert line([found["policy"]]) == pytest.approx({1: 1.5, 2: 2.5})


def test_what_lies_over_time_is_not_cut() -> None:
    run = make_run(state="running")
    for attempt in (1, 2):
        if attempt == 2:
            begin(run, 2, None)
        event = make.system({"cpu_percent": 10.0 * attempt}, attempt=attempt, role="runner", t=T0 + attempt)
        store([delivery(run.pk, 1, [event], attempt=attempt)], memory=AttemptCache(), now=NOW)

    assert line(read_clean(run_id=run.pk, names=["cpu_percent"]).series) == {T0 + 1: 10.0, T0 + 2: 20.0}


def long_run() -> tuple[Run, np.ndarray]:
    """Return a compacted run of 60,000 visible steps: 1 to 30,123 of the first attempt, of 40,000; and its clean
    line."""
    run = make_run(state="running")
    row = Metric.objects.create(run=run, name="loss")
    y = np.random.default_rng(0).normal(size=70_000)
    first, second = np.arange(1, 40_001), np.arange(30_124, 60_001)
    append_points({row.pk: points(first, first, y[:40_000])}, attempt=1, through=0)
    begin(run, 2, (1, 30_123))
    append_points({row.pk: points(second, second, y[40_000 : 40_000 + len(second)])}, attempt=2, through=0)
    return run, np.concatenate([y[:30_123], y[40_000 : 40_000 + len(second)]])


def test_a_long_line_is_cut_to_the_point_and_drawn_with_real_points() -> None:
    run, clean = long_run()

    found = read_clean(run_id=run.pk, names=["loss"], num_points=120).series[0]

    assert (found.of, found.row_points) == (60_000, 100)
    assert 100 < found.n <= 120
    assert all(value == clean[x - 1] for x, value in zip(found.x.tolist(), found.y.tolist(), strict=True))
    assert (found.y.min(), found.y.max()) == (clean.min(), clean.max())


def test_smoothing_runs_on_through_the_restored_step_in_every_window() -> None:
    run, clean = long_run()
    weight, total, mass, expected = 0.99, 0.0, 0.0, []
    for value in clean:
        total, mass = weight * total + (1 - weight) * value, weight * mass + (1 - weight)
        expected.append(total / mass)

    for low, high in [(30_000, 30_250), (30_124, 30_200), (29_000, 29_100), (59_900, 60_000)]:
        window = SeriesWindow(low=low, high=high)
        found = read_clean(
            run_id=run.pk, names=["loss"], smoothing=Smoothing(kind="ema", amount=weight), window=window
        ).series[0]

        assert found.x.tolist() == list(range(low, high + 1))
        assert found.y.tolist() == clean[low - 1 : high].tolist()
        assert found.smooth is not None
        assert np.allclose(found.smooth, expected[low - 1 : high], atol=1e-6)


def test_a_number_out_of_range_is_refused() -> None:
    with pytest.raises(ValueError, match="points: 3"):
        read_clean(run_id="r-1", names=["loss"], num_points=3)


def test_the_small_line_of_lists_is_the_clean_one_and_changes_when_the_run_is_resumed() -> None:
    run = make_run(state="running")
    memory = AttemptCache()
    for batch, step in enumerate((1, 2, 3, 4), start=1):
        event = metric(step, **{"reward/mean": 1.0 if step > 2 else 0.0})
        store([delivery(run.pk, batch, [event])], memory=memory, now=NOW)
    run.refresh_from_db()
    before = sparklines([run_header(run)], width=60, height=20)[run.pk]

    begin(run, 2, (1, 2))
    run.refresh_from_db()
    after = sparklines([run_header(run)], width=60, height=20)[run.pk]

    assert len(before.split()) == 4
    assert len(after.split()) == 2
