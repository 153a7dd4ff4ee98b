"""Reading series: every level gives the truth, a window gives its part, smoothing does not depend on either."""

import math

import numpy as np
import pytest

from jobs.ingest.compaction import append_points, compact
from jobs.ingest.store import AttemptCache, store
from jobs.models import Chunk, Metric, Run
from jobs.telemetry import stocks
from jobs.telemetry.chunks import CHUNK_POINTS, points
from jobs.telemetry.series import SeriesWindow, read_series, series_names
from jobs.telemetry.smoothing import Smoothing
from profiling import events as make
from tests.batches import T0, delivery, metric
from tests.rows import NOW, make_run

pytestmark = pytest.mark.django_db


def seal(run: Run, y: np.ndarray, name: str = "loss", kind: str = "metric") -> None:
    """Put points with x = 1, 2, ... into chunks, as compaction does."""
    row, _ = Metric.objects.get_or_create(run=run, name=name, kind=kind)
    x = np.arange(1, len(y) + 1) * (1 if kind == "metric" else 10**9)
    for start in range(0, len(y), 50_000):
        part = slice(start, start + 50_000)
        append_points({row.pk: points(x[part], x[part], y[part])}, attempt=1, through=0)


def noise(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=n)


def test_a_short_series_comes_whole() -> None:
    run = make_run()
    store([delivery(run.pk, 1, [metric(1, loss=3.0), metric(2, loss=float("nan"))])], memory=AttemptCache(), now=NOW)

    answer = read_series(run_id=run.pk, names=["loss"])

    found = answer.series[0]
    assert (found.n, found.of, found.x.tolist(), answer.through_seq) == (2, 2, [1, 2], 1)
    assert found.y[0] == 3.0
    assert math.isnan(found.y[1])
    assert found.smooth is None


@pytest.mark.parametrize(("num", "row_points"), [(5_000, 1), (250_000, 100)])
def test_spikes_and_nans_survive_at_every_level(num: int, row_points: int) -> None:
    run = make_run()
    y = noise(num)
    y[num // 3], y[num // 2], y[num - 5] = 1e6, -1e6, math.nan
    seal(run, y)

    found = read_series(run_id=run.pk, names=["loss"], num_points=500).series[0]

    assert found.row_points == row_points
    assert found.of == num
    assert found.n <= 500
    shown = dict(zip(found.x.tolist(), found.y.tolist(), strict=True))
    assert shown[num // 3 + 1] == 1e6
    assert shown[num // 2 + 1] == -1e6
    assert math.isnan(shown[num - 4])
    assert {1, num} <= set(shown)
    assert all(value == y[x - 1] or math.isnan(value) for x, value in shown.items())


def test_the_coarse_level_and_its_finer_tail_are_one_series() -> None:
    run = make_run()
    y = noise(123_456)
    seal(run, y)  # 12 chunks of level 1, 3 sealed ones of level 0 beyond, one open
    Metric.objects.get(name="loss")
    store([delivery(run.pk, 1, [metric(123_457, loss=77.0)])], memory=AttemptCache(), now=NOW)

    found = read_series(run_id=run.pk, names=["loss"], num_points=100).series[0]

    assert (found.row_points, found.of) == (100, 123_457)
    assert (found.x[-1], found.y[-1]) == (123_457, 77.0)
    assert found.y[:-1].max() == y.max()
    assert found.y.min() == y.min()


def test_low_and_high_are_the_extremes_of_the_stretch() -> None:
    run = make_run()
    y = noise(10_000)
    seal(run, y)

    found = read_series(run_id=run.pk, names=["loss"], num_points=100).series[0]

    assert bool((found.low <= found.y).all())
    assert bool((found.high >= found.y).all())
    assert (found.low.min(), found.high.max()) == (y.min(), y.max())


def test_smoothing_is_computed_before_points_are_left_out() -> None:
    run = make_run()
    y = noise(20_000)
    seal(run, y)
    weight, total, mass, expected = 0.9, 0.0, 0.0, []
    for value in y:
        total, mass = weight * total + (1 - weight) * value, weight * mass + (1 - weight)
        expected.append(total / mass)

    found = read_series(
        run_id=run.pk, names=["loss"], num_points=200, smoothing=Smoothing(kind="ema", amount=weight)
    ).series[0]

    assert found.smooth is not None
    assert np.allclose(found.smooth, np.array(expected)[found.x - 1])


@pytest.mark.parametrize("weight", [0.6, 0.99])
def test_a_window_shows_its_part_smoothed_as_in_the_whole(weight: float) -> None:
    run = make_run()
    seal(run, noise(30_000))
    whole = read_series(
        run_id=run.pk, names=["loss"], num_points=20_000, smoothing=Smoothing(kind="ema", amount=weight)
    ).series[0]
    by_step = dict(zip(whole.x.tolist(), zip(whole.y.tolist(), whole.smooth.tolist(), strict=True), strict=True))

    part = read_series(
        run_id=run.pk,
        names=["loss"],
        num_points=2000,
        smoothing=Smoothing(kind="ema", amount=weight),
        window=SeriesWindow(low=15_001, high=16_000),
    ).series[0]

    assert (part.n, part.of) == (1000, 1000)
    assert (part.x[0], part.x[-1]) == (15_001, 16_000)
    for x, y, smoothed in zip(part.x.tolist(), part.y.tolist(), part.smooth.tolist(), strict=True):
        if x in by_step:
            assert (y, pytest.approx(smoothed, abs=1e-6)) == (by_step[x][0], by_step[x][1])


def test_a_window_zooms_in_to_single_points() -> None:
    run = make_run()
    y = noise(300_000)
    seal(run, y)

    found = read_series(
        run_id=run.pk, names=["loss"], num_points=1000, window=SeriesWindow(low=200_000, high=200_500)
    ).series[0]

    assert (found.row_points, found.of) == (1, 501)
    assert found.y.tolist() == y[199_999:200_500].tolist()


def test_a_window_without_points_has_no_series() -> None:
    run = make_run()
    seal(run, noise(2000))

    assert read_series(run_id=run.pk, names=["loss"], window=SeriesWindow(low=5000)).series == ()


def test_system_readings_are_placed_by_time() -> None:
    run = make_run()
    event = make.system({"cpu_percent": 12.5}, attempt=1, role="runner", t=T0)
    store([delivery(run.pk, 1, [event])], memory=AttemptCache(), now=NOW)

    found = read_series(run_id=run.pk, names=["cpu_percent"]).series[0]

    assert (found.kind, found.role, found.x.tolist()) == ("system", "runner", [T0])


def test_series_of_all_roles_and_ranks_of_a_name_come_together() -> None:
    run = make_run()
    rows = [metric(1, role=role, rank=rank, loss=1.0) for role, rank in [("policy", 1), ("driver", 0), ("policy", 0)]]
    store([delivery(run.pk, 1, rows)], memory=AttemptCache(), now=NOW)

    found = read_series(run_id=run.pk, names=["loss", "unknown"]).series

    assert [(s.role, s.rank) for s in found] == [("driver", 0), ("policy", 0), ("policy", 1)]
    assert [(s.name, s.role, s.rank) for s in series_names(run_id=run.pk)] == [(s.name, s.role, s.rank) for s in found]


def test_a_run_compacted_while_it_is_read_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run()
    memory = AttemptCache()
    for batch in range(1, 6):
        store([delivery(run.pk, batch, [metric(batch, loss=float(batch))])], memory=memory, now=NOW)
    original, calls = stocks._planned, []

    def fold_first(*args: object) -> object:
        if not calls:
            compact(run_id=run.pk, limit=3)
        calls.append(1)
        return original(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(stocks, "_planned", fold_first)

    found = read_series(run_id=run.pk, names=["loss"]).series[0]

    assert found.y.tolist() == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert len(calls) == 2


def test_a_number_out_of_range_is_refused() -> None:
    with pytest.raises(ValueError, match="points: 3"):
        read_series(run_id="r-1", names=["loss"], num_points=3)


def test_chunks_are_as_long_as_the_docs_say() -> None:
    run = make_run()
    seal(run, noise(2500))

    assert list(Chunk.objects.order_by("seq").values_list("n", flat=True)) == [CHUNK_POINTS, CHUNK_POINTS, 500]
