"""Statistics of series: what is kept equals what all points say, whatever came when, was resumed or is unfolded."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from jobs.ingest.compaction import append_points, compact
from jobs.ingest.store import AttemptCache, store
from jobs.models import Attempt, Metric, Run, SeriesStatistics
from jobs.telemetry import clean_statistics
from jobs.telemetry.chunks import Points, points
from jobs.telemetry.clean_series import read_clean
from jobs.telemetry.clean_statistics import SeriesFacts, read_facts
from jobs.telemetry.kept_statistics import read_kept
from jobs.telemetry.series import series_rows
from jobs.telemetry.statistics import PlacedValue, Statistics, merged, newest_at, statistics_of
from tests.batches import delivery, metric
from tests.rows import NOW, make_run

Value = st.floats(width=32) | st.sampled_from([math.nan, math.inf, -math.inf, 0.0, 1e300, -1e300])
Rows = st.lists(st.tuples(st.integers(0, 30), Value), min_size=1, max_size=40)


def brute(data: list[tuple[int, float]]) -> Statistics:
    """Return the statistics by looking at one point after the other."""
    finite = [(x, y) for x, y in data if math.isfinite(y)]
    newest = max(x for x, _y in data)
    least, most = ([y for _x, y in finite] or [math.nan] for _ in range(2))
    return Statistics(
        n=len(data),
        finite=len(finite),
        first_x=min(x for x, _y in data),
        last=PlacedValue(x=newest, y=[y for x, y in data if x == newest][-1]),
        low=PlacedValue(x=min(x for x, y in finite if y == min(least)), y=min(least)) if finite else None,
        high=PlacedValue(x=min(x for x, y in finite if y == max(most)), y=max(most)) if finite else None,
        mean=math.fsum(y / len(finite) for _x, y in finite) if finite else None,
    )


def same(one: Statistics | None, other: Statistics) -> bool:
    """Return True if they are the same but for the last digits of the mean, NaN as NaN."""
    assert one is not None
    assert one.last.x == other.last.x
    assert one.last.y == other.last.y or (math.isnan(one.last.y) and math.isnan(other.last.y))
    assert (one.n, one.finite, one.first_x) == (other.n, other.finite, other.first_x)
    assert (one.low, one.high) == (other.low, other.high)
    if other.mean is None:
        assert one.mean is None
    else:
        assert other.high is not None
        assert other.low is not None
        size = max(abs(other.high.y), abs(other.low.y))
        assert one.mean == pytest.approx(other.mean, rel=1e-9, abs=1e-9 * size)
    return True


def columns(data: list[tuple[int, float]]) -> Points:
    return points([x for x, _ in data], [0] * len(data), [y for _, y in data])


@given(rows=Rows, cuts=st.lists(st.integers(0, 40), max_size=4), at=st.integers(-1, 31))
@example(rows=[(1, math.nan)], cuts=[], at=1)
def test_parts_put_together_are_the_whole(rows: list[tuple[int, float]], cuts: list[int], at: int) -> None:
    edges = [0, *sorted(cut for cut in cuts if cut < len(rows)), len(rows)]
    whole = None
    for start, end in itertools.pairwise(edges):
        whole = merged(whole, statistics_of(columns(rows[start:end])))

    assert same(whole, brute(rows))
    before = [x for x, _y in rows if x <= at]
    found = newest_at(columns(rows), at)
    assert (found.x if found else None) == max(before, default=None)


def facts(run: Run, *, at: int | None = None) -> SeriesFacts | None:
    metrics = series_rows(run_ids=[run.pk], names=["loss"])
    return next(iter(read_facts(run_ids=[run.pk], metrics=metrics, at=at).values()), None)


def by_points(run: Run) -> Statistics:
    (only,) = read_clean(run_id=run.pk, names=["loss"], num_points=20_000).series
    return brute(list(zip(only.x.tolist(), only.y.tolist(), strict=True)))


def report(run: Run, attempt: int, steps: range, *, plus: float) -> None:
    memory = AttemptCache()
    for batch, step in enumerate(steps, start=1):
        store(
            [delivery(run.pk, batch, [metric(step, attempt=attempt, loss=step + plus)], attempt=attempt)],
            memory=memory,
            now=NOW,
        )


@pytest.mark.django_db
@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lengths=st.lists(st.integers(1, 6), min_size=1, max_size=3),
    restored=st.lists(st.integers(0, 8), min_size=2, max_size=2),
    fold=st.integers(0, 12),
    at=st.integers(0, 12),
)
@example(lengths=[6, 6, 6], restored=[3, 5], fold=9, at=4)
@example(lengths=[4, 3, 2], restored=[0, 0], fold=0, at=2)
def test_a_resumed_runs_statistics_are_those_of_its_clean_history(
    lengths: list[int], restored: list[int], fold: int, at: int
) -> None:
    run = make_run(state="running")
    report(run, 1, range(1, lengths[0] + 1), plus=0.1)
    for number, (length, step) in enumerate(zip(lengths[1:], restored, strict=False), start=2):
        origin = {"resume_attempt": number - 1, "resume_step": step} if step else {}
        Attempt.objects.create(run=run, number=number, submission_id=f"{run.pk}-{number}", **origin)
        Run.objects.filter(pk=run.pk).update(latest_attempt=number)
        report(run, number, range(step, step + length), plus=number / 10)
    if fold:
        compact(run_id=run.pk, limit=fold)

    found = facts(run, at=at)

    assert found is not None
    assert same(found.statistics, by_points(run))
    (line,) = read_clean(run_id=run.pk, names=["loss"]).series
    before = [(x, y) for x, y in zip(line.x.tolist(), line.y.tolist(), strict=True) if x <= at]
    assert found.at == (PlacedValue(x=before[-1][0], y=before[-1][1]) if before else None)


@pytest.mark.django_db
def test_a_long_series_is_not_read_for_its_statistics(monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run()
    row = Metric.objects.create(run=run, name="loss")
    y = np.random.default_rng(0).normal(size=12_345)
    y[4321], y[-1] = math.inf, math.nan
    x = np.arange(1, len(y) + 1)
    for start in range(0, len(y), 700):
        part = slice(start, start + 700)
        append_points({row.pk: points(x[part], x[part], y[part])}, attempt=1, through=0)
    whole = by_points(run)

    def unwanted(*_arguments: Any, **_more: Any) -> None:
        raise AssertionError("chunks were read")

    monkeypatch.setattr(clean_statistics, "decode_points", unwanted)
    monkeypatch.setattr(clean_statistics, "read_stocks", unwanted)
    found = facts(run, at=12_345)

    assert found is not None
    assert same(found.statistics, whole)
    assert found.at is not None
    assert math.isnan(found.at.y)


@pytest.mark.django_db
@pytest.mark.parametrize(("at", "expected"), [(2500, 2500), (3050, 3000), (0, None), (4100, 4100)])
def test_the_newest_point_before_a_step_is_found_across_a_gap(at: int, expected: int | None) -> None:
    run = make_run()
    row = Metric.objects.create(run=run, name="loss")
    x = np.concatenate([np.arange(1, 3001), np.arange(4001, 5001)])
    append_points({row.pk: points(x, x, x / 2)}, attempt=1, through=0)

    found = facts(run, at=at)

    assert found is not None
    assert (found.at.x if found.at else None) == expected


@pytest.mark.django_db
def test_statistics_folded_while_they_are_read_are_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run(state="running")
    report(run, 1, range(1, 6), plus=0.0)
    calls: list[int] = []

    def fold_first(ids: list[int]) -> object:
        if not calls:
            compact(run_id=run.pk, limit=3)
        calls.append(1)
        return read_kept(ids)

    monkeypatch.setattr(clean_statistics, "read_kept", fold_first)
    found = facts(run)

    assert found is not None
    assert (found.statistics.n, found.statistics.mean, len(calls)) == (5, 3.0, 2)


@pytest.mark.django_db
def test_what_was_stored_before_there_were_statistics_is_counted() -> None:
    import importlib

    from django.apps import apps

    run = make_run()
    row = Metric.objects.create(run=run, name="loss")
    x = np.arange(1, 2501)
    append_points({row.pk: points(x, x, np.sin(x))}, attempt=1, through=7)
    kept = SeriesStatistics.objects.values().get()
    SeriesStatistics.objects.all().delete()

    importlib.import_module("jobs.migrations.0011_statistics").fill(apps, None)

    again = SeriesStatistics.objects.values().get()
    assert again | {"id": 0, "mean": 0} == kept | {"id": 0, "mean": 0}
    assert again["mean"] == pytest.approx(kept["mean"])
