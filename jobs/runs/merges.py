"""Make a model of any checkpoint of a run: a row, a job on the checkpoint's node, and a file like other models'.

The job hands its file over with the token of its attempt, which is fenced off once the run has ended, and with a key of
its own, which opens the way for this one file while the merge is under way, and for nothing else.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from secrets import token_hex

from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction
from django.db.models import Q
from django.utils.crypto import constant_time_compare, salted_hmac
from django.utils.translation import gettext as _

from jobs.accounts.audit import record
from jobs.adapters.adapter import adapter
from jobs.captures import artifacts as files
from jobs.catalog.sentence import in_words
from jobs.catalog.spec.parse import SpecInvalid, parse_spec
from jobs.catalog.spec.runspec import RunSpec
from jobs.cluster.nodes import runner_node
from jobs.cluster.ray_api import ClusterState, ClusterUnreachable
from jobs.models import UNDER_WAY, Answer, Artifact, Attempt, Merge, Run, RunEvent
from jobs.runs import launch
from jobs.runs.annotate import ChangeRefused
from jobs.runs.hub_token import hub_environment
from jobs.runs.short_jobs import JobKind, JobPlace
from jobs.telemetry.attempt_spec import spec_json
from jobs.telemetry.notify import run_changed

TYPE = "model"
_HERE = 1e-3  # of the resource that a node alone has


class MergeOver(Exception):
    """The merge is not under way any more, and nothing is kept of its file."""


def why_no_model(spec: RunSpec) -> str:
    """Return why no model can be made of any checkpoint of such a run, in the reader's language; "" where one can."""
    return in_words(adapter(spec.trainer.name).checkpoints.why_no_model(spec), _)


def request_merge(*, run_id: str, attempt: int, step: int, user: AbstractBaseUser | None, now: datetime) -> Merge:
    """Queue the making of a model of a checkpoint. Raises: ChangeRefused."""
    with transaction.atomic():
        run = Run.objects.select_for_update(of=("self",)).get(pk=run_id)
        of_step = {"run": run, "attempt": attempt, "step": step}
        checkpoint = Artifact.objects.filter(type="checkpoint", **of_step).first()
        if checkpoint is None or checkpoint.meta.get("removed") or checkpoint.meta.get("trashed"):
            text = _("Attempt %(attempt)s has no checkpoint of step %(step)s (any more).")
            raise ChangeRefused("step", text % {"attempt": attempt, "step": step})
        if run.trashed_at is not None:
            text = _("%(name)s is in the trash. Restore it, then ask for its models.")
            raise ChangeRefused("run", text % {"name": run.name}, is_conflict=True)
        if why := _why_refused(Attempt.objects.select_related("run").get(run=run, number=attempt)):
            raise ChangeRefused("run", why)
        made = Artifact.objects.filter(type=TYPE, is_ready=True, **of_step).first()
        if made is not None:
            text = _("%(name)s is a model of this checkpoint already.") % {"name": made.name}
            raise ChangeRefused("step", text, is_conflict=True)
        if Merge.objects.filter(state__in=UNDER_WAY, **of_step).exists():
            raise ChangeRefused("step", _("A model of this checkpoint is being made. Wait for it."), is_conflict=True)
        merge = Merge.objects.create(
            **of_step,
            submission_id=f"merge-{run.pk}-{token_hex(8)}",
            created_by_id=user.pk if user else None,
            created_at=now,
        )
        _tell(merge, f"A model of checkpoint {step} asked for", now, user)
        after = {"attempt": attempt, "step": step, "merge": merge.pk}
        record(actor=user, verb="run.merge", object_type="run", object_id=run.pk, after=after)
        transaction.on_commit(partial(run_changed, run.pk))
    return merge


def _why_refused(attempt: Attempt) -> str:
    try:
        return why_no_model(parse_spec(spec_json(attempt)))
    except SpecInvalid as error:
        return _("This console no longer accepts the spec of the run: %(why)s") % {"why": error}


def cancel_merge(*, merge: Merge, user: AbstractBaseUser | None, now: datetime) -> None:
    """End the making of a model, and keep nothing of it. Raises: ChangeRefused if it is over already.

    If Ray is away its job is ended by the reconciler; what it hands over is not taken any more.
    """
    with transaction.atomic():
        if not MERGES.settle(merge.pk, state="canceled", now=now):
            raise ChangeRefused("state", _("It is over already: nothing is left to cancel."), is_conflict=True)
        about = {"attempt": merge.attempt, "step": merge.step, "merge": merge.pk}
        record(actor=user, verb="run.cancel_merge", object_type="run", object_id=merge.run_id, before=about)
    try:
        MERGES.end_job(merge)
    except ClusterUnreachable:
        return


def delete_model(*, merge: Merge, user: AbstractBaseUser | None, now: datetime) -> None:
    """Delete the model that was made, with what was asked of it; it may be made again.

    Raises: ChangeRefused if it is gone already, or is being asked.
    """
    with transaction.atomic():
        made = Artifact.objects.select_for_update().filter(merge=merge.pk).first()
        if made is None:
            raise ChangeRefused("state", _("Its model is deleted already."), is_conflict=True)
        if Answer.objects.filter(artifact=made, state__in=UNDER_WAY).exists():
            text = _("%(name)s is being asked a prompt. Wait for its response, then delete it.")
            raise ChangeRefused("state", text % {"name": made.name}, is_conflict=True)
        before = {"attempt": merge.attempt, "step": merge.step, "name": made.name, "bytes": made.size}
        _tell(merge, f"{made.name} deleted", now, user)
        record(actor=user, verb="run.delete_model", object_type="run", object_id=merge.run_id, before=before)
        transaction.on_commit(made.delete_bytes)
        transaction.on_commit(partial(run_changed, merge.run_id))
        Artifact.objects.filter(pk=made.pk).delete()


def call_off_merges(*, run_id: str, now: datetime) -> None:
    """End the making of models of a run that goes to the trash; the reconciler ends their jobs. In a transaction."""
    for pk in Merge.objects.filter(run_id=run_id, state__in=UNDER_WAY).values_list("pk", flat=True):
        MERGES.settle(pk, state="canceled", now=now)


def merge_key(merge: Merge) -> str:
    """Return the key of a merge, which its job alone is told: the name of the job is drawn anew for each."""
    return salted_hmac("pitwall.merge", f"{merge.pk}/{merge.submission_id}", algorithm="sha256").hexdigest()


def merge_of(*, run_id: str, attempt: int, shown: str) -> Merge | None:
    """Return the merge under way of which a job shows `<number>:<key>`; None if it is none of this attempt's."""
    number, _colon, key = shown.partition(":")
    if not number.isdecimal() or len(number) > 18:
        return None
    merge = Merge.objects.filter(pk=int(number), run_id=run_id, attempt=attempt, state__in=UNDER_WAY).first()
    return merge if merge is not None and constant_time_compare(key, merge_key(merge)) else None


def receive_model(merge: Merge, piece: files.FilePiece) -> files.FileProgress:
    """Take a piece of the model, whatever else it says it is.

    Raises: MergeOver if it was canceled meanwhile; what jobs.captures.artifacts raises.
    """
    piece = replace(piece, type=TYPE, step=merge.step, meta={})
    if not Merge.objects.filter(pk=merge.pk, state__in=UNDER_WAY).exists():
        raise MergeOver
    try:
        return files.receive(run_id=merge.run_id, attempt=merge.attempt, name=merge.file_name, piece=piece)
    except files.FileGone as error:
        raise MergeOver from error
    finally:
        # Not of one that is finished: the reconciler may have seen the whole file before this request was over.
        if not Merge.objects.filter(pk=merge.pk, state__in=(*UNDER_WAY, "finished")).exists():
            with transaction.atomic():
                MERGES.clear(merge)
            raise MergeOver


def settle_merge(merge: Merge, *, problem: str, now: datetime) -> None:
    """Keep the job's own word: the model is here, or why there is none."""
    made = _file_of(merge)
    if made is not None and not problem:
        MERGES.settle(merge.pk, state="finished", artifact=made, now=now)
    else:
        problem = problem or _("The job ended without handing the model over.")
        MERGES.settle(merge.pk, state="failed", problem=problem, now=now)


def _file_of(merge: Merge) -> Artifact | None:
    """Return the whole file of a merge."""
    own = {"run_id": merge.run_id, "attempt": merge.attempt, "name": merge.file_name}
    return Artifact.objects.filter(is_ready=True, **own).first()


def _tell(merge: Merge, text: str, now: datetime, user: AbstractBaseUser | None = None) -> None:
    RunEvent.objects.create(
        run_id=merge.run_id,
        attempt=merge.attempt,
        at=now,
        verb="merge",
        text=text[:500],
        step=merge.step,
        actor_id=user.pk if user else None,
    )


class _Merges(JobKind[Merge]):
    model = Merge
    module = "jobs.runner.merge_checkpoint"
    patience = timedelta(days=1)
    most_at_once = 2
    is_after_runs = True

    def place(self, job: Merge, state: ClusterState) -> JobPlace:
        attempt = self._attempt(job)
        # Where it is not known the job, on the head's node, says that the checkpoint is not there.
        node = runner_node(attempt, state)
        return JobPlace(resources={node.resource: _HERE} if node else {}, runtime=launch.runtime_of(attempt))

    def environment(self, job: Merge, state: ClusterState) -> Mapping[str, str]:  # noqa: ARG002
        attempt = self._attempt(job)
        return {
            **launch.environment(attempt),
            **hub_environment(attempt.run.spec),
            "PITWALL_DEVICE": "cpu",
            "PITWALL_MERGE": str(job.pk),
            "PITWALL_MERGE_KEY": merge_key(job),
            "PITWALL_STEP": str(job.step),
            "PITWALL_ARTIFACT": job.file_name,
        }

    def _attempt(self, job: Merge) -> Attempt:
        return Attempt.objects.select_related("run").get(run_id=job.run_id, number=job.attempt)

    def metadata(self, job: Merge) -> Mapping[str, str]:
        return {"pitwall_run": job.run_id, "pitwall_merge": str(job.pk)}

    def why_late(self, job: Merge) -> str:
        if job.state == "queued":
            return _("For a day the cluster was not reachable or had no CPU free. Try again when fewer runs are live.")
        return _("The model was not here within a day. Look at Ray's job log.")

    def why_dead(self, why: str) -> str:
        return _("The job that makes the model ended: %(why)s") % {"why": why}

    def bury(self, job: Merge, problem: str, now: datetime) -> None:
        if _file_of(job) is not None:
            settle_merge(job, problem="", now=now)  # it was handed over, and its own report lost
        else:
            super().bury(job, problem, now)

    def clear(self, job: Merge) -> None:
        of_step = Merge.objects.filter(run_id=job.run_id, attempt=job.attempt, step=job.step).exclude(pk=job.pk)
        if of_step.filter(Q(state__in=UNDER_WAY) | ~Q(artifact=None)).exists():
            return  # the file of that name is another's
        rows = Artifact.objects.filter(run_id=job.run_id, attempt=job.attempt, name=job.file_name, type=TYPE)
        for row in rows:
            transaction.on_commit(row.delete_bytes)
        rows.delete()

    def tell(self, job: Merge) -> None:
        if job.state == "finished" or job.ended_at is None:
            return  # the file itself is told of
        how = "was canceled" if job.state == "canceled" else f"was not made: {job.problem}"
        _tell(job, f"A model of checkpoint {job.step} {how}", job.ended_at)


MERGES = _Merges()
"""The models that are made of checkpoints."""
