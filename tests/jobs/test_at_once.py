"""The same thing asked for by many at the same instant, in threads of their own, happens once."""

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from console.sign_in.link import LinkUnusable, make_link, use_link
from jobs.accounts.members import MemberRefused, set_member
from jobs.captures import artifacts as files
from jobs.captures.captures import request_capture, withdraw_capture
from jobs.captures.refusals import CaptureRefused
from jobs.ingest.store import AttemptCache, store
from jobs.models import Answer, Attempt, AuditEvent, Capture, Command, Membership, Run, RunEvent, Study, Upload
from jobs.preflight.data_files import UploadRefused, delete_upload, store_upload
from jobs.runs import admission, launch, lifecycle
from jobs.runs.prompt_model import PromptRefused, ask
from jobs.runs.resume import ResumeRefused, resume_run
from jobs.runs.retry import queue_retries
from jobs.storage.quotas import set_quota
from jobs.sweeps.sweeps import stop_study
from profiling import events
from tests.batches import delivery
from tests.jobs.runs.test_admission import cluster
from tests.jobs.sweeps.test_sweeps import made as make_sweep
from tests.rows import NOW, make_artifact, make_project, make_run, make_user

pytestmark = pytest.mark.django_db(transaction=True)

NUM = 6


def at_once(deed: Callable[[int], Any], num: int = NUM) -> list[Any]:
    """Return what each thread's call gave; all begin together."""
    gate = threading.Barrier(num)

    def one(number: int) -> Any:
        try:
            connection.ensure_connection()
            gate.wait(60)
            return deed(number)
        finally:
            connection.close()

    with ThreadPoolExecutor(num) as pool:
        return list(pool.map(one, range(num)))


def test_a_launch_with_one_key_makes_one_run() -> None:
    project = make_project()

    made = at_once(lambda _: launch.create_run(project=project, spec={}, user=None, idempotency_key="click", now=NOW))

    assert Counter(is_new for _, is_new in made) == {True: 1, False: NUM - 1}
    assert {run.pk for run, _ in made} == {Run.objects.get().pk}
    assert (Attempt.objects.count(), RunEvent.objects.count()) == (1, 1)


def test_a_sweep_with_one_key_makes_its_runs_once() -> None:
    project = make_project()

    made = at_once(lambda _: make_sweep(project, idempotency_key="click"))

    assert Counter(is_new for _, is_new in made) == {True: 1, False: NUM - 1}
    assert (Study.objects.count(), Run.objects.count()) == (1, 4)


def test_processes_that_admit_from_the_queue_together_keep_to_the_sweeps_limit() -> None:
    make_sweep(make_project())

    admitted = at_once(lambda _: admission.admit_waiting(state=cluster(cpus=64), now=NOW))

    assert sum(len(found) for found in admitted) == 2
    assert Attempt.objects.filter(state="starting").count() == 2


def test_a_sweep_stopped_while_the_queue_moves_is_stopped_whole() -> None:
    study, _is_new = make_sweep(make_project())

    def move(number: int) -> int:
        if number == 0:
            return stop_study(study_id=study.pk, user=None, now=NOW)
        admission.admit_waiting(state=cluster(cpus=64), now=NOW)
        return 0

    assert sum(at_once(move)) == 4
    assert not Run.objects.filter(state__in=("queued", "starting")).exists()


def test_a_stop_is_one_stop() -> None:
    run = make_run(state="running")

    done = at_once(lambda _: lifecycle.request_stop(run_id=run.pk, user=None, now=NOW))

    assert Counter(done) == {True: 1, False: NUM - 1}
    assert Command.objects.filter(verb="stop").count() == 1


def test_a_run_ends_once() -> None:
    run = make_run(state="running")
    words = ("finished", "failed", "stopped")

    done = at_once(
        lambda n: lifecycle.finish(run_id=run.pk, attempt=1, state=words[n % 3], cause={}, cleanup={}, now=NOW)
    )

    run.refresh_from_db()
    assert sum(done) == 1
    assert run.state == Attempt.objects.get().state == words[done.index(True) % 3]


def test_of_two_prompts_one_is_asked() -> None:
    artifact = make_artifact(make_run(state="finished"))

    def click(_: int) -> bool:
        try:
            ask(artifact=artifact, prompt="hi", user=None, now=NOW)
        except PromptRefused:
            return False
        return True

    assert sum(at_once(click)) == 1
    assert Answer.objects.count() == 1


def test_a_link_signs_in_once() -> None:
    token = make_link(user=make_user(), base_url="", now=NOW, lifetime=timedelta(hours=1)).rpartition("/")[2]

    def follow(_: int) -> bool:
        try:
            use_link(token=token, now=NOW)
        except LinkUnusable:
            return False
        return True

    assert sum(at_once(follow)) == 1


def test_admins_who_demote_each_other_leave_one() -> None:
    project = make_project()
    admins = [make_user(project=project, role="admin") for _ in range(2)]

    def demote(number: int) -> bool:
        try:
            set_member(project=project, username=admins[number].username, role="viewer", actor=admins[1 - number])
        except MemberRefused:
            return False
        return True

    assert sorted(at_once(demote, 2)) == [False, True]
    assert Membership.objects.filter(role="admin").count() == 1


def test_an_admin_who_was_deactivated_is_no_other_admin() -> None:
    project = make_project()
    left = make_user(project=project, role="admin")
    gone = make_user(project=project, role="admin")
    type(gone).objects.filter(pk=gone.pk).update(is_active=False)

    with pytest.raises(MemberRefused, match="the last one"):
        set_member(project=project, username=left.username, role="viewer", actor=left)


def test_a_piece_that_comes_several_times_is_written_once(settings: Any, tmp_path: Any) -> None:
    settings.FILES_DIR = tmp_path
    run = make_run(state="running")
    data = b"abc" * 1000
    sha256 = "9ac3ac9a9f0a6c0f0f4e5b2d" + "0" * 40  # of something else: the file never becomes ready
    piece = files.FilePiece(
        offset=0, size=6000, sha256=sha256, type="model", step=-1, path="model/final", meta={}, data=data
    )

    def send(_: int) -> int:
        try:
            return files.receive(run_id=run.pk, attempt=1, name="model/final", piece=piece).received
        except files.OffsetWrong as error:
            return -error.received

    assert sorted(at_once(send)) == [-3000] * (NUM - 1) + [3000]
    assert files.progress(run_id=run.pk, attempt=1, name="model/final").received == 3000


def test_uploads_at_once_cannot_pass_a_quota_together(settings: Any, tmp_path: Any) -> None:
    settings.FILES_DIR, project = tmp_path, make_project()
    set_quota(project, values={"upload_bytes": 25, "uploads": 4}, actor=None)

    def bring(number: int) -> bool:
        row = b'{"a": %d}\n' % number  # nine bytes
        try:
            store_upload(project=project, file_name="a.jsonl", chunks=[row], user=None, now=NOW)
        except UploadRefused:
            return False
        return True

    assert sum(at_once(bring)) == 2
    assert Upload.objects.count() == 2
    assert len([path for path in (tmp_path / "uploads").iterdir() if len(path.name) == 64]) == 2


def test_files_of_runs_at_once_cannot_pass_a_quota_together(settings: Any, tmp_path: Any) -> None:
    settings.FILES_DIR, project = tmp_path, make_project()
    runs = [make_run(project, state="running") for _ in range(NUM)]
    set_quota(project, values={"storage_bytes": 25}, actor=None)
    about: dict[str, Any] = {"offset": 0, "size": 9, "type": "model", "step": 1, "path": "", "meta": {}}

    def hand_over(number: int) -> bool:
        piece = files.FilePiece(sha256="0" * 64, data=b"123", **about)
        try:
            files.receive(run_id=runs[number].pk, attempt=1, name="a.zip", piece=piece)
        except files.DiskFull:
            return False
        return True

    assert sum(at_once(hand_over)) == 2


def test_what_one_project_deletes_another_that_brings_it_keeps(settings: Any, tmp_path: Any) -> None:
    settings.FILES_DIR, projects = tmp_path, [make_project() for _ in range(NUM)]

    def bring(number: int) -> Upload:
        return store_upload(project=projects[number], file_name="a.jsonl", chunks=[b"{}\n"], user=None, now=NOW)

    def come_or_go(number: int) -> None:
        row = bring(number)
        if number % 2:
            delete_upload(upload=row, user=None)

    at_once(come_or_go)
    (row,) = set(Upload.objects.values_list("sha256", flat=True))
    assert (tmp_path / "uploads" / row).read_bytes() == b"{}\n"


def test_of_many_who_resume_a_run_one_does() -> None:
    run = make_run(state="failed")

    def click(_: int) -> int | None:
        try:
            return resume_run(run_id=run.pk, step=None, hardware={}, user=None, now=NOW).number
        except ResumeRefused:
            return None

    made = at_once(click)

    run.refresh_from_db()
    assert sorted(made, key=str) == [2] + [None] * (NUM - 1)
    assert (run.state, run.latest_attempt, Attempt.objects.filter(run=run).count()) == ("queued", 2, 2)
    assert RunEvent.objects.filter(run=run, attempt=2).count() == 1


def test_a_retry_and_a_person_who_cancels_it_do_not_both_win() -> None:
    run = make_run(state="failed", spec={"policy": {"retries": 3, "retry_on": "cluster"}})
    Attempt.objects.filter(run=run).update(cause={"side": "cluster"})

    def deed(number: int) -> str:
        if number % 2:
            return "retried" if queue_retries(now=NOW) else ""
        return "canceled" if lifecycle.request_stop(run_id=run.pk, user=None, now=NOW) else ""

    done = Counter(at_once(deed))

    run.refresh_from_db()
    num = Attempt.objects.filter(run=run).count()
    # Either it was kept from retrying, or it was queued once and that attempt perhaps canceled.
    assert num == (2 if done["retried"] else 1)
    assert done["retried"] <= 1
    assert (run.state == "failed") is (num == 1)
    assert done["canceled"] == (1 if run.is_stop_requested else 0)
    assert run.state != "queued"  # who pressed Stop is never passed over


def test_a_capture_withdrawn_while_its_run_leaves_the_queue_is_never_half_sent() -> None:
    run = make_run(spec={"profile": {"tool": "torch", "first_step": 1, "num_steps": 2}})
    capture = Capture.objects.get(run=run).pk

    def move(number: int) -> None:
        if number == 0:
            lifecycle.admit(run_id=run.pk, attempt=1, now=NOW)
        else:
            withdraw_capture(run_id=run.pk, capture_id=capture, user=None, now=NOW)

    at_once(move)

    state = Capture.objects.values_list("state", flat=True).get()
    verbs = list(Command.objects.order_by("pk").values_list("verb", flat=True))
    assert (state, verbs) in [("withdrawn", []), ("armed", ["profile", "withdraw"])]
    assert AuditEvent.objects.filter(verb="capture.withdraw").count() == 1


def test_who_withdraws_while_recording_begins_is_refused_or_finds_that_it_goes_on() -> None:
    run = make_run(state="running", spec={"knobs": {"train.num_steps": 40}})
    asked: dict[str, Any] = {"tool": "torch", "first_step": 0, "num_steps": 2, "roles": [], "ranks": []}
    capture = request_capture(run_id=run.pk, user=None, now=NOW, **asked)
    begun = events.capture(capture.pk, "recording", attempt=1, step=3)

    def move(number: int) -> bool:
        if number == 0:
            store([delivery(run.pk, 1, [begun])], memory=AttemptCache(), now=NOW)
            return False
        try:
            withdraw_capture(run_id=run.pk, capture_id=capture.pk, user=None, now=NOW)
        except CaptureRefused:
            return False
        return True

    was_asked = any(at_once(move))

    capture.refresh_from_db()
    assert (capture.state, capture.withdraw_asked_at is not None) == ("recording", was_asked)
    assert Command.objects.filter(verb="withdraw").count() == was_asked
    assert RunEvent.objects.filter(text__contains="goes on: recording had begun").count() == was_asked
