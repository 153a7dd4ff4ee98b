"""Chunks plus tail are all points, for any batches and any moments of compaction, and dying in between changes
nothing."""

import math
from typing import Any

import pytest
from django.db import transaction
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.django import TestCase

from jobs.ingest import compaction
from jobs.ingest.compaction import Compactor, compact, forget_frames, forget_log_lines
from jobs.ingest.store import AttemptCache, store
from jobs.models import Chunk, Frame, LogChunk, Metric, Run
from jobs.telemetry.chunks import decode_all, decode_rows, decode_spans
from jobs.telemetry.series import read_series
from jobs.telemetry.spans import read_spans
from profiling import events as make
from tests.batches import T0, delivery, metric
from tests.rows import NOW, make_run

values = st.floats(-1e6, 1e6) | st.sampled_from([math.nan, math.inf])
batches = st.lists(
    st.one_of(
        st.just("compact"),
        st.lists(st.tuples(st.sampled_from(["loss", "reward"]), values), max_size=40),
    ),
    max_size=25,
)


def same(a: list[float], b: list[float]) -> bool:
    return len(a) == len(b) and all(x == y or (math.isnan(x) and math.isnan(y)) for x, y in zip(a, b, strict=True))


class TestAnyOrder(TestCase):
    @settings(max_examples=40, deadline=None)
    @given(batches, st.integers(1, 12), st.integers(1, 60))
    def test_chunks_and_tail_are_all_points_in_order(
        self, scenario: list[Any], chunk_points: int, at_once: int
    ) -> None:
        run = make_run(state="running")
        memory, step, number = AttemptCache(), 0, 0
        expected: dict[str, list[float]] = {}
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(compaction, "CHUNK_POINTS", chunk_points)
            patch.setattr(compaction, "CHUNK_ROWS", 10**9)  # no roll-ups: their chunks hold 1,000 points
            for part in scenario:
                if part == "compact":
                    compact(run_id=run.pk, limit=at_once)
                    continue
                number += 1
                events = []
                for name, value in part:
                    step += 1
                    events.append(metric(step, **{name: value}))
                    expected.setdefault(name, []).append(value)
                store([delivery(run.pk, number, events)], memory=memory, now=NOW)

            answer = read_series(run_id=run.pk, names=["loss", "reward"], num_points=20_000)

            found = {s.name: s.y.tolist() for s in answer.series}
            assert set(found) == set(expected)
            assert all(same(found[name], expected[name]) for name in expected)
            assert answer.through_seq == number


pytestmark = pytest.mark.django_db


def write(run: Run, first: int, last: int, *, memory: AttemptCache, per_batch: int = 1000, **more: float) -> None:
    """Store one point of `loss` a step, value = step."""
    number = Run.objects.get(pk=run.pk).seq
    for start in range(first, last + 1, per_batch):
        number += 1
        end = min(start + per_batch, last + 1)
        events = [metric(step, loss=float(step), **more) for step in range(start, end)]
        store([delivery(run.pk, number, events)], memory=memory, now=NOW)


def chunks(level: int) -> list[Chunk]:
    return list(Chunk.objects.filter(level=level).order_by("seq"))


def test_full_chunks_are_sealed_and_the_open_one_is_filled_up() -> None:
    run, memory = make_run(state="running"), AttemptCache()
    write(run, 1, 1500, memory=memory, per_batch=100)
    compact(run_id=run.pk)
    sealed = chunks(0)[0]
    assert [c.n for c in chunks(0)] == [1000, 500]

    write(run, 1501, 2600, memory=memory, per_batch=100)
    compact(run_id=run.pk)

    assert [(c.seq, c.n, c.x0, c.x1) for c in chunks(0)] == [
        (0, 1000, 1, 1000),
        (1, 1000, 1001, 2000),
        (2, 600, 2001, 2600),
    ]
    assert chunks(0)[0].through_seq == sealed.through_seq  # not touched again
    assert decode_all([c.blob for c in chunks(0)]).y.tolist() == [float(i) for i in range(1, 2601)]


def test_every_10000_points_are_rolled_up_and_every_million_again() -> None:
    run, memory = make_run(state="running"), AttemptCache()
    write(run, 1, 20_500, memory=memory)

    compact(run_id=run.pk)

    assert [(c.seq, c.n, c.x0, c.x1) for c in chunks(1)] == [(0, 100, 1, 10_000), (1, 100, 10_001, 20_000)]
    rows = decode_rows(chunks(1)[0].blob)
    assert (rows.ymin[1], rows.ymax[1], rows.mean[1], rows.n[1]) == (101.0, 200.0, 150.5, 100)
    assert chunks(2) == []


def test_a_million_points_reach_level_two() -> None:
    run, memory = make_run(state="running"), AttemptCache()
    metric_row = Metric.objects.create(run=run, name="loss")
    level_one = [
        Chunk(metric=metric_row, attempt=1, level=1, seq=i, n=100, x0=i, x1=i, through_seq=1, blob=_level_one(i))
        for i in range(100)
    ]
    Chunk.objects.bulk_create(level_one)
    del memory

    compaction._roll_up_sealed([(metric_row.pk, 99)], 1, 1, level=2)

    rows = decode_rows(chunks(2)[0].blob)
    assert (len(rows), rows.n[0], rows.ymin[0], rows.ymax[99]) == (100, 10_000, 0.0, 9999.0)


def _level_one(i: int) -> bytes:
    """Return a level-1 chunk of 100 rows of 100 points, row k with the value 100 i + k."""
    from jobs.telemetry.chunks import encode_rows, join_rows, points, roll_up, rows_of_points

    rows = [roll_up(rows_of_points(points([0] * 100, [0] * 100, [100.0 * i + k] * 100)), width=100) for k in range(100)]
    return encode_rows(join_rows(rows))


def test_compaction_again_changes_nothing() -> None:
    run, memory = make_run(state="running"), AttemptCache()
    write(run, 1, 2500, memory=memory)
    compact(run_id=run.pk)
    before = [(c.pk, bytes(c.blob)) for c in Chunk.objects.order_by("pk")]

    assert compact(run_id=run.pk).num_frames == 0

    assert [(c.pk, bytes(c.blob)) for c in Chunk.objects.order_by("pk")] == before


def test_dying_while_compaction_leaves_everything_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    run, memory = make_run(state="running"), AttemptCache()
    write(run, 1, 1500, memory=memory)

    def die(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(compaction, "collect_spans", die)  # after the points were written
    with pytest.raises(KeyboardInterrupt), transaction.atomic():
        compact(run_id=run.pk)
    monkeypatch.undo()

    assert Chunk.objects.count() == 0
    compact(run_id=run.pk)
    assert read_series(run_id=run.pk, names=["loss"], num_points=5000).series[0].of == 1500


def test_attempts_have_chunks_of_their_own() -> None:
    from jobs.models import Attempt

    run = make_run(state="running")
    store([delivery(run.pk, 1, [metric(1, loss=1.0)])], memory=AttemptCache(), now=NOW)
    Attempt.objects.create(run=run, number=2, state="running", submission_id="second")
    Run.objects.filter(pk=run.pk).update(latest_attempt=2)
    store([delivery(run.pk, 1, [metric(1, attempt=2, loss=2.0)], attempt=2)], memory=AttemptCache(), now=NOW)

    compact(run_id=run.pk)

    found = read_series(run_id=run.pk, names=["loss"]).series
    assert [(s.attempt, s.y.tolist()) for s in found] == [(1, [1.0]), (2, [2.0])]


def test_spans_are_compacted_and_sealed_like_points() -> None:
    run, memory = make_run(state="running"), AttemptCache()
    for number in range(1, 4):
        spans = [
            make.span("rollout", start=T0 + i, duration=1, attempt=1, step=i, role="vllm", name=f"n{i % 3}")
            for i in range((number - 1) * 600, number * 600)
        ]
        store([delivery(run.pk, number, spans)], memory=memory, now=NOW)
        compact(run_id=run.pk)

    assert [c.n for c in chunks(0)] == [1000, 800]
    assert decode_spans(chunks(0)[1].blob).step.tolist() == list(range(1000, 1800))
    assert read_spans(run_id=run.pk).of == 1800


def test_frames_stay_ten_minutes_after_they_were_folded() -> None:
    run, memory = make_run(state="running"), AttemptCache()
    clock = {"now": 1000.0}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("jobs.ingest.compaction.time.monotonic", lambda: clock["now"])
        folder = Compactor()
        write(run, 1, 600, memory=memory, per_batch=1)
        folder.work()
        assert Run.objects.get(pk=run.pk).folded_seq == 600

        clock["now"] += 599
        folder.work()
        assert Frame.objects.count() == 600

        clock["now"] += 2
        folder.work()
        assert Frame.objects.count() == 0


def test_a_quiet_run_is_compacted_after_five_minutes() -> None:
    run, memory = make_run(state="running"), AttemptCache()
    clock = {"now": 1000.0}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("jobs.ingest.compaction.time.monotonic", lambda: clock["now"])
        write(run, 1, 3, memory=memory, per_batch=1)
        folder = Compactor()
        folder.work()
        assert Run.objects.get(pk=run.pk).folded_seq == 0

        clock["now"] += 301
        folder.work()

        assert Run.objects.get(pk=run.pk).folded_seq == 3


def test_a_run_that_cannot_be_compacted_stops_nothing_and_is_tried_again() -> None:
    run, memory = make_run(state="running"), AttemptCache()
    clock = {"now": 1000.0}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("jobs.ingest.compaction.time.monotonic", lambda: clock["now"])
        write(run, 1, 600, memory=memory, per_batch=1)
        folder = Compactor()
        with pytest.MonkeyPatch.context() as broken:
            broken.setattr(compaction, "decode_frame", lambda _: {}["nothing"])
            folder.work()
            folder.work()
        assert Run.objects.get(pk=run.pk).folded_seq == 0

        clock["now"] += 61
        folder.work()

        assert Run.objects.get(pk=run.pk).folded_seq == 600


def test_spans_past_the_limit_of_series_do_not_stop_compaction() -> None:
    run = make_run(state="running")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("jobs.ingest.store.MAX_SERIES", 1)
        events = [metric(1, loss=1.0), make.span("rollout", start=T0, duration=1, attempt=1, step=1, role="vllm")]
        store([delivery(run.pk, 1, events)], memory=AttemptCache(), now=NOW)

    assert compact(run_id=run.pk).num_frames == 1


def test_frames_that_are_not_compacted_are_never_forgotten() -> None:
    run, memory = make_run(state="running"), AttemptCache()
    write(run, 1, 5, memory=memory, per_batch=1)
    compact(run_id=run.pk, limit=2)

    assert forget_frames(run_id=run.pk, through_seq=5) == 2

    assert read_series(run_id=run.pk, names=["loss"]).series[0].y.tolist() == [1.0, 2.0, 3.0, 4.0, 5.0]


def test_the_oldest_log_lines_go_first() -> None:
    run, memory = make_run(state="running"), AttemptCache()
    for number in range(1, 6):
        event = make.log([f"{number}"] * 500, attempt=1, role="vllm")
        store([delivery(run.pk, number, [event])], memory=memory, now=NOW)

    forget_log_lines(run_id=run.pk, keep_lines=1000)

    assert list(LogChunk.objects.order_by("first_line").values_list("first_line", flat=True)) == [1000, 1500, 2000]
