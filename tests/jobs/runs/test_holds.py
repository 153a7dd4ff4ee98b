"""Quotas in the queue: whichever way a run came in, it waits with a reason that names the quota, and blocks nobody."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import AbstractUser

from jobs.catalog.spec.parse import parse_spec
from jobs.models import Artifact, Attempt, Command, Project, Run, Upload
from jobs.preflight.data_files import UploadInUse, delete_upload, kept_uploads, store_upload
from jobs.runs import admission, holds
from jobs.runs.checks import place
from jobs.runs.resume import resume_run
from jobs.runs.retry import queue_retries
from jobs.storage import quotas
from jobs.sweeps.sweeps import create_study
from tests.jobs.runs.test_admission import cluster
from tests.rows import NOW, make_artifact, make_project, make_run, make_user

pytestmark = pytest.mark.django_db


@pytest.fixture
def project() -> Project:
    return make_project("theirs")


@pytest.fixture
def person(project: Project) -> AbstractUser:
    return make_user("ada", project=project, role="admin")


def launched(project: Project, person: AbstractUser) -> Run:
    return make_run(project, user=person)


def resumed(project: Project, person: AbstractUser) -> Run:
    run = make_run(project, state="finished", user=person)
    resume_run(run_id=run.pk, step=None, hardware={}, num_steps=None, user=person, now=NOW + timedelta(minutes=5))
    return run


def retried(project: Project, person: AbstractUser) -> Run:
    run = make_run(project, state="failed", user=person, spec={"policy": {"retries": 1, "retry_on": "cluster"}})
    for rows in (Attempt.objects.filter(run=run), Run.objects.filter(pk=run.pk)):
        rows.update(cause={"side": "cluster", "text": "a node went"})
    queue_retries(now=NOW + timedelta(seconds=1))
    return run


def swept(project: Project, person: AbstractUser) -> Run:
    knobs = [{"id": "optimizer.learning_rate", "values": [1e-4]}]
    about: dict[str, Any] = {"num_runs": None, "max_concurrent": 1, "seed": 0, "idempotency_key": None}
    study, _ = create_study(
        project=project, name="s", spec={}, knobs=knobs, method="grid", user=person, now=NOW, **about
    )
    return study.runs.get()


def admit(*, minutes: float = 10, gpus: float = 0) -> list[str]:
    state = cluster(cpus=64, gpus=gpus)
    return [run for run, _number in admission.admit_waiting(state=state, now=NOW + timedelta(minutes=minutes))]


@pytest.mark.parametrize("way", [launched, resumed, retried, swept])
@pytest.mark.parametrize("whose", ["project", "person"])
def test_however_a_run_comes_in_it_waits_for_the_quota_and_then_starts(
    way: Callable[[Project, AbstractUser], Run], whose: str, project: Project, person: AbstractUser
) -> None:
    live = make_run(project, state="running", user=person)
    quotas.set_quota(project if whose == "project" else person, values={"live_runs": 1}, actor=None)
    run = way(project, person)
    other = make_run(make_project(), user=make_user())

    assert admit() == [other.pk]

    run.refresh_from_db()
    owner = "project Theirs" if whose == "project" else "ada"
    assert (run.state, run.wait_reason) == ("queued", f"Waits for its quota: {owner} runs 1 of 1 at once")
    Attempt.objects.filter(run=live).update(state="finished", ended_at=NOW, cleanup={"processes_left": 0})
    assert admit() == [run.pk]


def test_the_form_says_beforehand_that_the_quota_would_hold_the_run(project: Project, person: AbstractUser) -> None:
    make_run(project, state="running", user=person)
    spec, state = parse_spec({}), cluster(cpus=64)
    assert place(spec, state, project=project, user=person).is_admitted

    quotas.set_quota(project, values={"live_runs": 1}, actor=None)

    verdict = place(spec, state, project=project, user=person)
    assert verdict.reason == "Waits for its quota: project Theirs runs 1 of 1 at once"
    assert verdict.fits


def test_one_look_at_the_queue_starts_no_more_than_the_quota(project: Project, person: AbstractUser) -> None:
    quotas.set_quota(project, values={"live_runs": 2}, actor=None)
    runs = [make_run(project, user=person) for _ in range(4)]

    assert admit() == [runs[0].pk, runs[1].pk]
    runs[3].refresh_from_db()
    assert runs[3].wait_reason == "Waits for its quota: project Theirs runs 2 of 2 at once"


def test_used_up_gpu_hours_hold_runs_on_gpus_until_the_month_is_over(project: Project, person: AbstractUser) -> None:
    old = make_run(project, state="finished", user=person)
    Attempt.objects.filter(run=old).update(num_gpus=8, submitted_at=NOW - timedelta(hours=2), ended_at=NOW)
    quotas.set_quota(project, values={"gpu_hours": 16}, actor=None)
    on_gpus = make_run(project, user=person)
    on_cpus = make_run(project, user=person, spec={"hardware": {"device": "cpu"}})

    assert admit(gpus=8) == [on_cpus.pk]
    on_gpus.refresh_from_db()
    assert on_gpus.wait_reason == (
        "Waits for its quota: GPU hours of the month of Theirs: 16.0 h of 16.0 h are used. "
        "They begin anew on 2026-12-01, UTC."
    )
    assert admit(gpus=8, minutes=60 * 24 * 11) == [on_gpus.pk]


def test_live_runs_go_on_past_their_gpu_hours_unless_the_quota_says_otherwise(
    project: Project, person: AbstractUser
) -> None:
    run, on_cpus = (make_run(project, state="running", user=person) for _ in range(2))
    Attempt.objects.filter(run=run).update(num_gpus=4)
    quotas.set_quota(project, values={"gpu_hours": 4}, actor=None)
    later = NOW + timedelta(hours=1)
    assert holds.stop_used_up(now=later) == []

    quotas.set_quota(project, values={"stops_runs": True}, actor=None)

    assert holds.stop_used_up(now=later - timedelta(seconds=1)) == []
    assert holds.stop_used_up(now=later) == [run.pk]
    assert holds.stop_used_up(now=later) == []
    assert Command.objects.filter(attempt__run=run, verb="stop").count() == 1
    said = run.events.get(verb="quota").text
    assert said == "Stopped for its quota: GPU hours of the month of Theirs: 4.0 h of 4.0 h are used."
    on_cpus.refresh_from_db()
    assert on_cpus.state == "running"


def test_a_project_over_its_storage_starts_nothing_more(project: Project, person: AbstractUser) -> None:
    make_artifact(make_run(project, state="finished", user=person), size=3 << 30)
    quotas.set_quota(project, values={"storage_bytes": 2 << 30}, actor=None)
    run = make_run(project, user=person)

    assert admit() == []
    run.refresh_from_db()
    assert run.wait_reason == "Waits for its quota: Storage of Theirs: 3.0 GiB of 2.0 GiB are used."
    Artifact.objects.all().delete()
    assert admit() == [run.pk]


@pytest.fixture
def upload(project: Project, person: AbstractUser, settings: Any, tmp_path: Path) -> Upload:
    settings.FILES_DIR = tmp_path
    return store_upload(project=project, file_name="a.jsonl", chunks=[b"{}\n"], user=person, now=NOW)


def with_data(upload: Upload) -> dict[str, Any]:
    return {"data": {"kind": "upload", "id": f"upload:{upload.sha256}"}}


def test_a_data_file_that_a_run_waits_with_is_deleted_by_force_alone_and_then_the_run_fails(
    upload: Upload, project: Project, person: AbstractUser, tmp_path: Path, django_capture_on_commit_callbacks: Any
) -> None:
    over = make_run(project, state="finished", user=person, spec=with_data(upload))
    run = make_run(project, user=person, spec=with_data(upload))
    other = make_run(project, user=person)
    (kept,) = kept_uploads(project)
    assert ({each.id for each in kept.runs}, kept.num_open) == ({over.pk, run.pk}, 1)

    with pytest.raises(UploadInUse, match=f"a.jsonl is used by {run.pk}, which have not ended"):
        delete_upload(upload=upload, user=person)
    with django_capture_on_commit_callbacks(execute=True):
        delete_upload(upload=upload, user=person, is_forced=True)

    assert not (tmp_path / "uploads" / upload.sha256).exists()
    assert admit() == [other.pk]
    run.refresh_from_db()
    assert run.state == "failed"
    assert run.cause["side"] == "user"
    assert run.cause["text"].startswith("its data file was deleted from the console. Upload it again")


def test_the_bytes_go_with_the_last_project_that_has_them(
    upload: Upload, person: AbstractUser, tmp_path: Path, django_capture_on_commit_callbacks: Any
) -> None:
    twin = store_upload(project=make_project(), file_name="b.jsonl", chunks=[b"{}\n"], user=None, now=NOW)
    path = tmp_path / "uploads" / upload.sha256

    with django_capture_on_commit_callbacks(execute=True):
        delete_upload(upload=upload, user=person)
    assert path.read_bytes() == b"{}\n"
    with django_capture_on_commit_callbacks(execute=True):
        delete_upload(upload=twin, user=person)
    assert not path.exists()
