"""What is counted of runs, projects and people, and the quotas over it."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import AbstractUser

from jobs.models import (
    Attempt,
    AuditEvent,
    Chunk,
    DiskSample,
    Frame,
    Layer,
    LogChunk,
    Metric,
    Project,
    Run,
    Sample,
    Upload,
)
from jobs.processes.reconcile import ReconcilerState, reconcile
from jobs.storage import forecast, quotas, usage
from jobs.storage.quotas import QuotaReached, QuotaRefused
from jobs.storage.usage import Bytes
from tests.rows import NOW, make_artifact, make_project, make_run, make_user
from tests.trace_rows import make_trace

pytestmark = pytest.mark.django_db


@pytest.fixture
def project() -> Project:
    return make_project("theirs")


@pytest.fixture
def person(project: Project) -> AbstractUser:
    return make_user("ada", project=project)


def report(run: Run, *, seq: int = 5) -> None:
    """Store rows as ingest does: 30 bytes of series, 9 of logs (a Chinese letter has three), 12 of samples."""
    metric = Metric.objects.create(run=run, name="loss")
    about = {"attempt": 1, "seq": 1}
    Chunk.objects.create(metric=metric, n=1, x0=0, x1=0, through_seq=1, blob=bytes(20), **about)
    Frame.objects.create(run=run, batch=1, at=NOW, payload=bytes(10), **about)
    place = {"role": "driver", "rank": 0, "stream": "out", "first_line": 0, "num_lines": 1, "at": NOW}
    LogChunk.objects.create(run=run, text="步\n12345", **about, **place)
    texts = {"prompt": "1+1=", "completion": "two", "expected": "twice"}
    Sample.objects.create(run=run, attempt=1, step=1, group=0, index=0, **texts)
    Run.objects.filter(pk=run.pk).update(seq=seq)


def test_everything_is_counted_for_its_project_and_for_who_brought_it(project: Project, person: AbstractUser) -> None:
    other = make_user(project=project)
    Upload.objects.create(project=project, sha256="0" * 64, file_name="a.jsonl", size=100, created_by_id=person.pk)
    Upload.objects.create(project=project, sha256="1" * 64, file_name="b.jsonl", size=11, created_by_id=other.pk)
    Upload.objects.create(
        project=make_project(), sha256="0" * 64, file_name="a.jsonl", size=100, created_by_id=other.pk
    )
    run = make_run(project, state="running", user=person)
    make_artifact(run, size=1000)
    make_artifact(run, "checkpoint-9", type="checkpoint", size=50_000, received=0)  # it stays on the cluster
    report(run)
    trace = make_trace(project)
    Layer.objects.filter(trace=trace).update(size=7000, facts={"bytes": 500})
    uploading = make_trace(project).layers.get()
    Layer.objects.filter(pk=uploading.pk).update(state="uploading", size=20_000, received=5, facts={})

    assert usage.count_rows(now=NOW) == 1

    assert usage.use_of("project", project.pk) == Bytes(
        uploads=111, traces=27_500, files=1000, series=30, logs=9, samples=12
    )
    assert usage.use_of("created_by", person.pk) == Bytes(uploads=100, files=1000, series=30, logs=9, samples=12)
    assert usage.use_of_runs([run.pk])[run.pk] == Bytes(files=1000, series=30, logs=9, samples=12)
    assert usage.use_of("project", project.pk).total == 28_662


def test_a_run_is_counted_again_once_it_has_reported_more_and_not_each_second(project: Project) -> None:
    run = make_run(project, state="running")
    report(run)
    assert usage.count_rows(now=NOW) == 1
    assert usage.count_rows(now=NOW + timedelta(hours=1)) == 0
    Frame.objects.create(run=run, attempt=1, seq=2, batch=2, at=NOW, payload=bytes(100))
    Run.objects.filter(pk=run.pk).update(seq=6)

    assert usage.count_rows(now=NOW + timedelta(minutes=9)) == 0
    assert usage.count_rows(now=NOW + timedelta(minutes=11)) == 1

    assert usage.use_of("project", project.pk).series == 130
    Frame.objects.filter(run=run).delete()
    usage.count_again([run.pk], now=NOW)
    assert usage.use_of("project", project.pk).series == 20


def gpu_attempt(run: Run, *, gpus: int, since: datetime, until: datetime | None, state: str = "finished") -> None:
    values = {"num_gpus": gpus, "submitted_at": since, "ended_at": until, "state": state}
    Attempt.objects.filter(run=run).update(**values)


def test_gpu_hours_are_devices_times_what_of_each_attempt_lies_in_the_month(
    project: Project, person: AbstractUser
) -> None:
    now = datetime(2026, 11, 10, 12, tzinfo=UTC)
    long_ago, over, live, other = (make_run(project, user=user) for user in (person, person, person, None))
    gpu_attempt(long_ago, gpus=8, since=now - timedelta(days=40), until=now - timedelta(days=20))
    gpu_attempt(over, gpus=2, since=datetime(2026, 10, 31, 23, tzinfo=UTC), until=datetime(2026, 11, 1, 3, tzinfo=UTC))
    gpu_attempt(live, gpus=4, since=now - timedelta(hours=1), until=None, state="running")
    gpu_attempt(other, gpus=1, since=now - timedelta(hours=2), until=now - timedelta(minutes=90))

    assert quotas.gpu_hours(project, now=now) == pytest.approx(2 * 3 + 4 * 1 + 0.5)
    assert quotas.gpu_hours(person, now=now) == pytest.approx(10)
    assert quotas.next_month(now) == datetime(2026, 12, 1, tzinfo=UTC)
    assert quotas.gpu_hours(project, now=quotas.next_month(now) + timedelta(minutes=30)) == pytest.approx(2)


def test_a_quota_is_set_changed_and_recorded(project: Project, person: AbstractUser) -> None:
    quotas.set_quota(project, values={"live_runs": 4, "gpu_hours": 100}, actor=person)
    quotas.set_quota(project, values={"live_runs": None, "stops_runs": True}, actor=person)

    limits = quotas.limits_of(project)
    assert (limits["live_runs"], limits["gpu_hours"], quotas.stops_runs(project)) == (None, 100.0, True)
    last = AuditEvent.objects.filter(verb="quota.set").latest("pk")
    assert (last.object_id, last.before, last.after) == (
        "theirs",
        {"live_runs": 4, "stops_runs": False},
        {"live_runs": None, "stops_runs": True},
    )


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("live_runs", -1, "live_runs: -1 is not a whole number from 0 on"),
        ("uploads", 1.5, "uploads: 1.5 is not a whole number"),
        ("gpu_hours", float("nan"), "gpu_hours: nan is not a number from 0 on"),
        ("storage_bytes", 1 << 61, "is not a whole number"),
        ("imports", "two", "imports: two is not"),
        ("imports", True, "imports: True is not"),
        ("disk", 5, "There is no quota 'disk'. There are storage_bytes, upload_bytes"),
        ("stops_runs", 1, "neither true nor false"),
    ],
)
def test_a_limit_that_makes_no_sense_is_refused(project: Project, name: str, value: Any, words: str) -> None:
    with pytest.raises(QuotaRefused, match=words):
        quotas.set_quota(project, values={name: value}, actor=None)


def test_what_does_not_fit_names_the_quota_and_what_is_used(project: Project, person: AbstractUser) -> None:
    Upload.objects.create(project=project, sha256="0" * 64, file_name="a.jsonl", size=90 << 20, created_by_id=person.pk)
    quotas.set_quota(project, values={"storage_bytes": 100 << 20}, actor=None)
    quotas.set_quota(person, values={"uploads": 1}, actor=None)

    quotas.require_storage(10 << 20, project=project, user=person)
    with pytest.raises(QuotaReached, match=r"Storage of Theirs: 90 MiB of 100 MiB are used, and this takes 11 MiB\."):
        quotas.require_storage(11 << 20, project=project, user=person)
    with pytest.raises(QuotaReached, match=r"Data files, number of ada: 1 of 1 are used\."):
        quotas.require_upload(1, project=project, user=person)
    use = next(use for use in quotas.uses(project, now=NOW) if use.name == "storage_bytes")
    assert (use.is_near, use.is_full, use.share) == (True, False, 0.9)


def test_an_hour_has_one_sample_and_a_week_of_them_is_kept(settings: Any, tmp_path: Path) -> None:
    settings.FILES_DIR = tmp_path
    Upload.objects.create(project=make_project(), sha256="0" * 64, file_name="a.jsonl", size=100)

    assert forecast.keep_sample(now=NOW)
    assert not forecast.keep_sample(now=NOW + timedelta(minutes=59))
    assert forecast.keep_sample(now=NOW + timedelta(minutes=60))
    sample = DiskSample.objects.latest("hour")
    assert sample.values["uploads"] == 100
    assert sample.values["disk"] > 0
    assert sample.values["database"] > 0
    assert forecast.keep_sample(now=NOW + timedelta(days=8, hours=2))
    assert DiskSample.objects.count() == 1


def test_the_reconciler_counts_and_keeps_samples_while_ray_is_away(
    project: Project, settings: Any, tmp_path: Path
) -> None:
    settings.FILES_DIR = tmp_path
    report(make_run(project, state="running"))
    memory = ReconcilerState()

    reconcile(now=NOW, memory=memory)
    reconcile(now=NOW + timedelta(seconds=1), memory=memory)

    assert DiskSample.objects.count() == 1
    assert usage.use_of("project", project.pk).logs == 9


def days(*values: float) -> list[tuple[datetime, float]]:
    return [(NOW + timedelta(days=i), value) for i, value in enumerate(values)]


@pytest.mark.parametrize(
    ("samples", "room", "growth", "left", "why"),
    [
        ([], 100, None, None, "a day of samples is needed"),
        (days(5), 100, None, None, "a day of samples is needed"),
        ([(NOW, 1.0), (NOW + timedelta(hours=23), 9.0)], 100, None, None, "a day of samples is needed"),
        (days(0, 10, 20), 100, 10, 10, ""),
        (days(0, 10, 40, 30), 100, 12, 100 / 12, ""),
        (days(20, 10, 0), 100, -10, None, "it does not grow"),
        (days(5, 5), 100, 0, None, "it does not grow"),
        (days(0, 1), 400, 1, None, "not within a year"),
        (days(0, 10), None, 10, None, "it has no limit of its own"),
        (days(0, 10), 0, 10, 0, ""),
    ],
)
def test_a_forecast_needs_a_day_and_growth(
    samples: list[tuple[datetime, float]], room: int | None, growth: float | None, left: float | None, why: str
) -> None:
    found = forecast.forecast(samples, room=room)

    assert found.growth_per_day == (None if growth is None else pytest.approx(growth))
    assert found.days_left == (None if left is None else pytest.approx(left))
    assert found.why == why
