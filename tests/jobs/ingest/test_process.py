"""Ingest takes each batch exactly once and in order, whatever arrives, and moves the run along."""

import json
from typing import Any

import orjson
import pytest
from django.db import OperationalError, connection

from jobs.ingest.inbox import accept
from jobs.ingest.process import Ingest
from jobs.ingest.store import AttemptCache, store
from jobs.models import Artifact, Attempt, Frame, LogChunk, Metric, Run, RunEvent, Sample
from jobs.telemetry.series import read_series
from jobs.telemetry.streams import INGEST, LIVE, async_client, expect_key, ingest_status
from profiling import events as make
from tests.batches import delivery, metric
from tests.rows import NOW, make_run
from tests.services import Valkey

pytestmark = pytest.mark.django_db


def put(valkey: Valkey, run: Run, batch: int, *batch_events: Any, attempt: int = 1, raw: bytes | None = None) -> None:
    body = raw if raw is not None else json.dumps(batch_events).encode()
    fields: dict[Any, Any] = {"run": run.pk, "attempt": attempt, "batch": batch, "events": body}
    with valkey.client() as client:
        client.xadd(INGEST, fields)


def losses(run: Run) -> list[float]:
    found = read_series(run_id=run.pk, names=["loss"], num_points=1000).series
    return [y for series in found for y in series.y.tolist()]


def test_batches_become_frames_numbered_without_a_hole(valkey: Valkey) -> None:
    run = make_run(state="running")
    for batch in range(1, 6):
        put(valkey, run, batch, metric(batch, loss=float(batch)))

    Ingest(valkey.client()).work()

    assert list(Frame.objects.order_by("seq").values_list("seq", "batch")) == [(i, i) for i in range(1, 6)]
    run.refresh_from_db()
    assert (run.seq, run.step, run.latest_values) == (5, 5, {"loss": 5.0})
    assert Attempt.objects.get(run=run).durable_batch == 5
    assert losses(run) == [1.0, 2.0, 3.0, 4.0, 5.0]


def test_what_was_stored_is_off_the_ingest_stream_and_on_the_live_one(valkey: Valkey) -> None:
    run = make_run(state="running")
    put(valkey, run, 1, metric(1, loss=1.0))

    Ingest(valkey.client()).work()

    with valkey.client() as client:
        assert client.xlen(INGEST) == 0
        entries: Any = client.xrange(LIVE)
    frames = [orjson.loads(fields[b"frame"]) for _, fields in entries if b"frame" in fields]
    assert [(f["type"], f["seq"]) for f in frames] == [("frame", 1)]
    assert any(b"seq" not in fields and fields[b"run"] == run.pk.encode() for _, fields in entries)


def test_the_same_batch_again_changes_nothing(valkey: Valkey) -> None:
    run = make_run(state="running")
    ingest = Ingest(valkey.client())
    put(valkey, run, 1, metric(1, loss=1.0), make.log(["one"], attempt=1, role="driver"))
    ingest.work()
    for _ in range(2):
        put(valkey, run, 1, metric(1, loss=1.0), make.log(["one"], attempt=1, role="driver"))
    put(valkey, run, 2, metric(2, loss=2.0))

    ingest.work()

    assert losses(run) == [1.0, 2.0]
    assert LogChunk.objects.count() == 1


def test_a_batch_after_a_gap_is_not_taken_and_the_endpoint_asks_the_database_again(valkey: Valkey) -> None:
    run = make_run(state="running")
    with valkey.client() as client:
        client.set(expect_key(run.pk, 1), 8)
    put(valkey, run, 1, metric(1, loss=1.0))
    put(valkey, run, 7, metric(7, loss=7.0))

    Ingest(valkey.client()).work()

    assert losses(run) == [1.0]
    with valkey.client() as client:
        assert client.get(expect_key(run.pk, 1)) is None
        assert client.xlen(INGEST) == 0


def test_an_old_attempt_writes_nothing(valkey: Valkey) -> None:
    run = make_run(state="running")
    Attempt.objects.create(run=run, number=2, state="running", submission_id="second")
    Run.objects.filter(pk=run.pk).update(latest_attempt=2)
    put(valkey, run, 1, metric(1, loss=1.0), attempt=1)
    put(valkey, run, 1, metric(1, attempt=2, loss=2.0), attempt=2)

    Ingest(valkey.client()).work()

    assert losses(run) == [2.0]
    assert Attempt.objects.get(run=run, number=1).durable_batch == 0


def test_a_batch_that_cannot_be_stored_is_skipped_told_and_blocks_nobody(valkey: Valkey) -> None:
    run, other = make_run(state="running"), make_run(state="running")
    put(valkey, run, 1, metric(1, loss=1.0))
    put(valkey, run, 2, raw=b'[{"kind": "metric"}]')
    put(valkey, run, 3, metric(3, loss=3.0))
    put(valkey, other, 1, raw=b"not even JSON")
    put(valkey, other, 2, metric(2, loss=2.0))

    Ingest(valkey.client()).work()

    assert losses(run) == [1.0, 3.0]
    assert losses(other) == [2.0]
    assert list(Frame.objects.filter(run=run).order_by("seq").values_list("seq", "batch")) == [(1, 1), (2, 3)]
    told = RunEvent.objects.get(run=run, verb="batch_skipped")
    assert "Batch 2 could not be stored" in told.text
    assert Attempt.objects.get(run=run).durable_batch == 3


def test_an_entry_that_is_not_ours_is_removed(valkey: Valkey) -> None:
    with valkey.client() as client:
        client.xadd(INGEST, {"hello": "world"})

        Ingest(valkey.client()).work()

        assert client.xlen(INGEST) == 0


@pytest.mark.django_db(transaction=True)
def test_a_full_database_keeps_batches_says_so_and_recovers(valkey: Valkey) -> None:
    if connection.vendor != "sqlite":
        pytest.skip("a database without room is made with SQLite's own page limit")
    run = make_run(state="running")
    ingest = Ingest(valkey.client())
    put(valkey, run, 1, *[metric(i, loss=float(i)) for i in range(1, 1500)])
    with connection.cursor() as cursor:
        cursor.execute("VACUUM")  # pages that earlier tests freed would still take the batch
        cursor.execute("PRAGMA max_page_count = 1")  # SQLite takes the number of pages there are

    with pytest.raises(OperationalError, match="full"):
        ingest.work()

    with valkey.client() as client:
        assert client.xlen(INGEST) == 1
    connection.close()  # the limit belongs to the connection
    ingest.work()
    assert Attempt.objects.get(run=run).durable_batch == 1
    assert read_series(run_id=run.pk, names=["loss"]).series[0].of == 1499


def test_the_first_metrics_make_the_run_running(valkey: Valkey) -> None:
    run = make_run(state="starting")
    ingest = Ingest(valkey.client())
    put(valkey, run, 1, make.state("loading", attempt=1, text="Loading vLLM weights"))
    ingest.work()
    run.refresh_from_db()
    assert (run.state, run.phase, run.activity) == ("starting", "load", "Loading vLLM weights")

    put(valkey, run, 2, make.state("training", attempt=1, text="Training"), metric(1, loss=1.0))
    ingest.work()

    run.refresh_from_db()
    assert (run.state, run.phase, run.activity, run.step) == ("running", "", "Training", 1)


@pytest.mark.parametrize("word", ["finished", "failed", "stopped"])
def test_the_terminal_event_ends_the_run_with_cause_and_proof(valkey: Valkey, word: str) -> None:
    run = make_run(state="running")
    cause = {"side": "trainer", "role": "vllm", "rank": 0, "text": "out of memory"} if word == "failed" else {}
    proof = {"processes_left": 0, "device_bytes_left": 0}
    last = {**make.state(word, attempt=1, cause=cause), "role": "runner", "meta": proof}
    put(valkey, run, 1, metric(1, loss=1.0), last)

    Ingest(valkey.client()).work()

    run.refresh_from_db()
    attempt = Attempt.objects.get(run=run)
    assert (run.state, run.cause, attempt.cleanup, attempt.durable_batch) == (word, cause, proof, 1)
    assert run.phase == ""
    assert losses(run) == [1.0]


def test_what_the_endpoint_took_before_the_run_ended_is_still_kept(valkey: Valkey) -> None:
    run = make_run(state="failed")
    put(valkey, run, 1, metric(1, loss=1.0), make.log(["the last words"], attempt=1, role="policy"))

    Ingest(valkey.client()).work()

    run.refresh_from_db()
    assert run.state == "failed"
    assert LogChunk.objects.get().text == "the last words"


def test_the_phase_is_what_followed_in_the_step_before(valkey: Valkey) -> None:
    run = make_run(state="running")
    ingest = Ingest(valkey.client())

    def spans(step: int, *phases: str) -> list[Any]:
        about = {"duration": 10**9, "attempt": 1, "step": step, "role": "driver"}
        return [make.span(phase, start=i, **about) for i, phase in enumerate(phases)]

    put(valkey, run, 1, *spans(1, "rollout", "reward", "update"))
    ingest.work()
    run.refresh_from_db()
    assert run.phase == ""  # nobody knows yet what follows

    put(valkey, run, 2, *spans(2, "rollout"))
    ingest.work()

    run.refresh_from_db()
    assert run.phase == "reward"


def test_logs_are_numbered_through_batches_and_a_restart(valkey: Valkey) -> None:
    run = make_run(state="running")
    put(valkey, run, 1, make.log(["a", "b"], attempt=1, role="vllm"), make.log(["c"], attempt=1, role="vllm"))
    Ingest(valkey.client()).work()
    put(valkey, run, 2, make.log(["d"] * 1200, attempt=1, role="vllm"), make.log(["x"], attempt=1, role="policy"))

    Ingest(valkey.client()).work()

    rows = LogChunk.objects.filter(role="vllm").order_by("first_line").values_list("first_line", "num_lines")
    assert list(rows) == [(0, 3), (3, 500), (503, 500), (1003, 200)]
    assert LogChunk.objects.get(role="policy").first_line == 0


def test_samples_artifacts_notes_and_states_get_their_rows(valkey: Valkey) -> None:
    run = make_run(state="running")
    sample = make.sample(
        attempt=1, step=3, group=0, index=1, prompt="2+2", completion="4", expected="4", reward=float("nan"),
        rewards={"math": 1.0}, tokens=2, is_eval=True,
    )  # fmt: skip
    artifact = make.artifact(
        "model/final", artifact="model", path="model/final", attempt=1, step=3, meta={"dtype": "f32"}
    )
    put(
        valkey, run, 1, sample, artifact, make.note("Saved a checkpoint", attempt=1, step=3, meta={"seconds": 2}),
        make.state("ready", attempt=1),
    )  # fmt: skip

    Ingest(valkey.client()).work()

    row = Sample.objects.get(run=run)
    assert (row.step, row.is_eval, row.reward, row.rewards, row.tokens) == (3, True, None, {"math": 1.0}, 2)
    file = Artifact.objects.get(run=run)
    assert (file.name, file.type, file.is_ready, file.meta) == ("model/final.zip", "model", False, {"dtype": "f32"})
    told = RunEvent.objects.filter(run=run).exclude(verb="queued").order_by("pk")
    assert [(e.verb, e.text, e.step) for e in told] == [
        ("note", "Saved a checkpoint", 3),
        ("trainer_ready", "The trainer is ready", None),
    ]


def test_a_new_announcement_does_not_undo_an_upload() -> None:
    run = make_run(state="running")
    about = {"type": "model", "path": "model/final", "size": 9, "received": 9, "is_ready": True, "sha256": "ab"}
    Artifact.objects.create(run=run, attempt=1, name="model/final.zip", **about)
    event = make.artifact("model/final", artifact="model", path="elsewhere", attempt=1)

    store([delivery(run.pk, 1, [event])], memory=AttemptCache(), now=NOW)

    row = Artifact.objects.get()
    assert (row.path, row.size, row.is_ready) == ("model/final", 9, True)


def test_5000_series_are_named_once() -> None:
    run = make_run(state="running")
    memory = AttemptCache()
    for batch in (1, 2):
        values = {f"layer/{i}/norm": float(i) for i in range(5000)}
        store([delivery(run.pk, batch, [metric(batch, **values)])], memory=memory, now=NOW)

    assert Metric.objects.filter(run=run).count() == 5000
    run.refresh_from_db()
    assert len(run.latest_values) == 300


def test_the_limit_of_series_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobs.ingest.store.MAX_SERIES", 3)
    run = make_run(state="running")
    events = [metric(1, **{f"m{i}": float(i) for i in range(6)})]

    store([delivery(run.pk, 1, events), delivery(run.pk, 2, events)], memory=AttemptCache(), now=NOW)

    assert sorted(Metric.objects.values_list("name", flat=True)) == ["m0", "m1", "m2"]
    assert RunEvent.objects.filter(verb="series_limit").count() == 1


def test_two_ingest_processes_store_each_batch_once(valkey: Valkey) -> None:
    run = make_run(state="running")
    first, second = AttemptCache(), AttemptCache()
    deliveries = [delivery(run.pk, i, [make.log([f"line {i}"], attempt=1, role="driver")]) for i in range(1, 5)]

    store(deliveries[:2], memory=first, now=NOW)
    store(deliveries[:3], memory=second, now=NOW)
    store(deliveries, memory=first, now=NOW)

    rows = LogChunk.objects.order_by("first_line").values_list("first_line", "text")
    assert list(rows) == [(i, f"line {i + 1}") for i in range(4)]


def test_a_large_frame_is_only_announced(valkey: Valkey) -> None:
    run = make_run(state="running")
    put(valkey, run, 1, make.log(["x" * 1000] * 200, attempt=1, role="driver"))

    Ingest(valkey.client()).work()

    with valkey.client() as client:
        entries: Any = client.xrange(LIVE)
    assert [fields.get(b"frame") for _, fields in entries if b"seq" in fields] == [None]


def test_the_ingest_process_says_that_it_lives(valkey: Valkey) -> None:
    Ingest(valkey.client()).work()

    with valkey.client() as client:
        status = ingest_status(client)
    assert (status.trouble, status.num_waiting) == ("", 0)
    assert status.is_alive(now=status.seen_at + 5)
    assert not status.is_alive(now=status.seen_at + 60)


async def test_the_endpoint_moves_expect_and_lets_it_fall_when_redis_lost_the_stream(valkey: Valkey) -> None:
    from jobs.ingest.batches import EventBatch

    def batch(number: int) -> EventBatch:
        return EventBatch(number=number, num_events=0, events=b"[]", answered=())

    client = async_client(valkey.url)
    about: dict[str, Any] = {"run_id": "r-1", "attempt": 1, "durable_through": 4}
    assert not (await accept(client, batch(4), **about)).is_taken  # stored before
    assert (await accept(client, batch(5), **about)).expect == 6
    assert not (await accept(client, batch(5), **about)).is_taken  # a retry
    assert (await accept(client, batch(7), **about)).expect == 6  # a gap
    assert (await accept(client, batch(0), **about)).expect == 6  # a heartbeat
    await client.delete(INGEST)
    assert (await accept(client, batch(0), **about)).expect == 5
    await client.aclose()
