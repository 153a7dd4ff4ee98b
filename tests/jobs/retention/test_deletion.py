"""Runs go to the trash, come back whole, and are deleted for good in steps of which any may be the last."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import AbstractUser

from jobs.accounts.access import NotAllowed
from jobs.ingest.store import AttemptCache, store
from jobs.models import Artifact, Attempt, AuditEvent, Capture, Chunk, Frame, LogChunk, Project, Run, TrashItem
from jobs.retention import purge
from jobs.retention.deletion import Deletion, delete_runs, purge_now, restore
from jobs.runs import lifecycle
from jobs.runs.annotate import ChangeRefused
from jobs.runs.queries import home, runs_list, view_counts
from jobs.runs.resume import ResumeRefused, resume_run
from profiling import events
from tests.attempts import end, train
from tests.batches import delivery
from tests.jobs.clock import Clock
from tests.jobs.fake_ray import FakeRay
from tests.rows import NOW, make_artifact, make_merge, make_project, make_run, make_user
from tests.trace_rows import make_trace

pytestmark = pytest.mark.django_db

DAYS = timedelta(days=30)


@pytest.fixture
def project() -> Project:
    return make_project()


@pytest.fixture
def admin(project: Project) -> AbstractUser:
    return make_user(project=project, role="admin")


def whole_run(project: Project, **fields: Any) -> Run:
    """Return an ended run with series, logs, checkpoints, a file and a trace."""
    run = make_run(project, state="running", **fields)
    train(run, range(1, 41))
    lines = [events.log([f"line {i}"], attempt=1, role="driver") for i in range(3)]
    store([delivery(run.pk, 2, lines)], memory=AttemptCache(), now=NOW)
    end(run, "finished")
    capture = Capture.objects.create(run=run, attempt=1, tool="torch", state="ready")
    make_trace(project, run=run, capture=capture)
    path = make_artifact(run).stored_path
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"bin")
    run.refresh_from_db()
    return run


def delete(run: Run, user: AbstractUser, *, stop: bool = False, **options: Any) -> Deletion:
    return delete_runs(runs=[run], user=user, stop=stop, now=NOW, **options)[0]


def folder_of(run: Run, settings: Any) -> Path:
    return Path(settings.FILES_DIR) / "runs" / run.pk


def test_a_deleted_run_is_out_of_sight_and_comes_back_whole(project: Project, admin: AbstractUser) -> None:
    run = whole_run(project)
    dry = delete(run, admin, is_dry_run=True)
    assert not TrashItem.objects.exists()

    done = delete(run, admin)

    assert (done.outcome, done.purge_at, done.size) == ("trashed", NOW + DAYS, dry.size)
    assert done.size.cluster == 1020 + 1040
    assert done.size.here > 3
    assert runs_list(project).total == 0
    assert view_counts(project, admin)["all"] == 0
    assert home(project, now=NOW).recent == ()
    with pytest.raises(ResumeRefused, match="is in the trash"):
        resume_run(run_id=run.pk, step=20, hardware={}, user=admin, now=NOW)
    assert delete(run, admin).message == f"{run.name} is in the trash already."

    restore(item_id=TrashItem.objects.get().pk, user=admin, now=NOW)

    assert [row.header.id for row in runs_list(project).rows] == [run.pk]
    assert Frame.objects.filter(run=run).count() == 2
    assert not TrashItem.objects.exists()
    verbs = list(AuditEvent.objects.order_by("pk").values_list("verb", flat=True))
    assert verbs[-2:] == ["run.delete", "trash.restore"]


def test_a_deleted_run_takes_its_merges_along(
    project: Project, admin: AbstractUser, ray: FakeRay, clock: Clock
) -> None:
    run = make_run(project, state="finished")
    under_way, over = make_merge(run), make_merge(run, step=4, state="failed")
    clock.step()

    delete(run, admin)
    clock.step(11)

    under_way.refresh_from_db()
    over.refresh_from_db()
    assert (under_way.state, over.state) == ("canceled", "failed")
    assert ray.stopped == [under_way.submission_id]


def test_a_piece_that_arrives_while_the_row_is_still_there_is_deleted_as_well(
    project: Project, admin: AbstractUser, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = whole_run(project)
    delete(run, admin)
    unlink, folder = purge._unlink_some, folder_of(run, settings)

    def and_one_more(path: Path) -> bool:
        there = unlink(path)
        if not there and Run.objects.filter(pk=run.pk).exists():
            (folder / "a1").mkdir(parents=True)
            (folder / "a1" / "9.part").touch()
        return there

    monkeypatch.setattr(purge, "_unlink_some", and_one_more)
    purge.purge_step(now=NOW + DAYS, seconds=60)

    assert TrashItem.objects.get().is_gone_here
    assert not folder.exists()


def test_who_may_delete(project: Project, admin: AbstractUser) -> None:
    author, other = make_user(project=project), make_user(project=project)
    run = make_run(project, state="finished", user=author)

    refused = delete(run, other)
    assert (refused.outcome, refused.is_allowed) == ("refused", False)
    assert delete(run, author).outcome == "trashed"
    item = TrashItem.objects.get()
    with pytest.raises(NotAllowed):
        restore(item_id=item.pk, user=other, now=NOW)
    with pytest.raises(NotAllowed):
        purge_now(item_id=item.pk, confirmed_name=run.name, user=other, now=NOW)
    restore(item_id=item.pk, user=admin, now=NOW)


def test_a_live_run_is_refused_or_stopped_first(project: Project, admin: AbstractUser, clock: Clock) -> None:
    queued, live = make_run(project), make_run(project, state="running")

    assert delete(live, admin).message == f"{live.name} is running. Stop it before you delete it."
    assert delete(queued, admin, stop=True).outcome == "trashed"
    assert delete(live, admin, stop=True).outcome == "stopping"
    clock.step()
    assert Run.objects.get(pk=live.pk).trashed_at is None
    assert Run.objects.get(pk=live.pk).state == "stopping"

    lifecycle.finish(run_id=live.pk, attempt=1, state="stopped", cause={}, cleanup={"processes_left": 0}, now=NOW)
    clock.step(60)

    assert Run.objects.get(pk=live.pk).trashed_at == clock.now
    assert TrashItem.objects.get(run_id=live.pk).purge_at == clock.now + DAYS


def test_a_run_that_others_start_from_is_kept_and_says_for_whom(project: Project, admin: AbstractUser) -> None:
    base, elsewhere = make_run(project, state="finished"), make_project()
    model = {"kind": "path", "id": f"/runs/{base.pk}/a1/model/final"}
    mine = make_run(project, spec={"name": "second", "model": model})
    theirs = make_run(elsewhere, spec={"name": "secret", "model": model})

    text = delete(base, admin).message

    assert f"second ({mine.pk})" in text
    assert theirs.pk in text
    assert "secret" not in text
    Run.objects.filter(pk__in=(mine.pk, theirs.pk)).update(trashed_at=NOW)
    assert delete(base, admin).outcome == "trashed"


def test_after_its_time_nothing_is_left_here_or_on_the_cluster(
    project: Project, admin: AbstractUser, clock: Clock, ray: FakeRay, settings: Any
) -> None:
    run, kept = whole_run(project), whole_run(project)
    delete(run, admin)
    clock.step(DAYS.total_seconds() - 60)
    assert Run.objects.filter(pk=run.pk).exists()

    clock.step(61)

    assert not Run.objects.filter(pk=run.pk).exists()
    assert not Artifact.objects.filter(run_id=run.pk).exists()
    assert not folder_of(run, settings).exists()
    assert Run.objects.filter(pk=kept.pk).exists()
    assert Frame.objects.filter(run=kept).exists()
    assert folder_of(kept, settings).exists()
    (job,) = [job for job in ray.submitted if job["entrypoint"].endswith("jobs.runner.remove_folders")]
    environment = job["runtime_env"]["env_vars"]
    assert json.loads(environment["PITWALL_FOLDERS"]) == [run.pk]
    assert "PITWALL_TOKEN" not in environment
    assert TrashItem.objects.get().is_gone_here

    ray.end(job["submission_id"], "FAILED", "node-b: permission denied")
    clock.step()
    assert "node-b: permission denied" in TrashItem.objects.get().problem
    clock.step(60)
    again = ray.submitted[-1]["submission_id"]
    assert again != job["submission_id"]
    ray.end(again, "SUCCEEDED")
    clock.step()

    assert not TrashItem.objects.exists()
    assert AuditEvent.objects.filter(verb="trash.delete", object_id=run.pk, project=run.project).exists()


def test_while_ray_is_away_the_clusters_part_waits_and_says_so(
    project: Project, admin: AbstractUser, clock: Clock
) -> None:
    run = whole_run(project)
    delete(run, admin)
    purge_now(item_id=TrashItem.objects.get().pk, confirmed_name=run.name, user=admin, now=NOW)

    clock.step()
    clock.step()

    item = TrashItem.objects.get()
    assert (item.state, item.is_gone_here, item.folders) == ("purging", True, [run.pk])
    assert "Ray cannot be asked" in item.problem
    with pytest.raises(ChangeRefused, match="cannot come back"):
        restore(item_id=item.pk, user=admin, now=NOW)


def test_a_purge_that_dies_after_any_step_goes_on_and_nobody_sees_half_a_run(
    project: Project, admin: AbstractUser, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(purge, "ROWS_AT_ONCE", 1)
    monkeypatch.setattr(purge, "FILES_AT_ONCE", 1)
    run = whole_run(project)
    delete(run, admin)
    left = []
    for _ in range(200):
        if not Run.objects.filter(pk=run.pk).exists():
            break
        assert runs_list(project).total == 0
        purge.purge_step(now=NOW + DAYS, seconds=0)  # as if the process were killed after each
        rows = Frame.objects.filter(run_id=run.pk).count() + LogChunk.objects.filter(run_id=run.pk).count()
        left.append(rows + sum(1 for _ in folder_of(run, settings).rglob("*")))

    assert not Run.objects.filter(pk=run.pk).exists()
    assert not folder_of(run, settings).exists()
    assert not Chunk.objects.filter(metric__run_id=run.pk).exists()
    assert left == sorted(left, reverse=True)
    assert len(set(left)) > 5


def test_for_good_needs_the_name(project: Project, admin: AbstractUser) -> None:
    run = make_run(project, state="finished", spec={"name": "old"})
    delete(run, admin)

    with pytest.raises(ChangeRefused, match="'new' is not the run's name"):
        purge_now(item_id=TrashItem.objects.get().pk, confirmed_name="new", user=admin, now=NOW)
    assert Attempt.objects.filter(run=run).exists()
