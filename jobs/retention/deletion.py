"""Delete runs: into the trash, from where they can be taken back, and from there for good (jobs.retention.purge)."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Literal

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction
from django.utils.translation import gettext as _

from jobs.accounts.access import NotAllowed, User, allows, role
from jobs.accounts.audit import record
from jobs.models import ENDED, Artifact, Capture, Project, Retention, Run, RunEvent, TrashItem
from jobs.retention.dependents import call, dependents_of
from jobs.retention.sizes import RunSize, sizes_of
from jobs.runs.annotate import ChangeRefused
from jobs.runs.lifecycle import request_stop
from jobs.runs.merges import call_off_merges
from jobs.telemetry.notify import run_changed

MOST_RUNS = 500
Outcome = Literal["trashed", "stopping", "refused"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletion:
    """What becomes of one run of a request: in the trash until `purge_at`, about to be there, or refused and why.

    `is_allowed` is False where it is the person's role that refuses it.
    """

    id: str
    name: str
    size: RunSize
    outcome: Outcome
    message: str = ""
    is_allowed: bool = True
    purge_at: datetime | None = None


def trash_days(project: Project) -> int:
    """Return how many days what is deleted can be taken back: the project's own number, else the console's."""
    own = Retention.objects.filter(project=project).values_list("trash_days", flat=True).first()
    return settings.TRASH_DAYS if own is None else own


def may_delete(user: User, project: Project, author_id: int | None) -> bool:
    """Return True for an admin of the project, and for an editor whose own run it is."""
    held = role(user, project)
    return allows(held, "admin") or (allows(held, "editor") and author_id is not None and author_id == user.pk)


def delete_runs(
    *, runs: Sequence[Run], user: AbstractBaseUser, stop: bool, now: datetime, is_dry_run: bool = False
) -> list[Deletion]:
    """Move runs to the trash, each by itself, and say of each what became of it; with `is_dry_run` nothing changes.

    A live one is refused, or with `stop` stopped first: it goes to the trash when it has ended. The caller has checked
    that the person may know of the runs.
    """
    ids = [run.pk for run in runs]
    sizes, needed = sizes_of(ids), dependents_of(ids)
    done = []
    for run in runs:
        about: dict[str, Any] = {"id": run.pk, "name": run.name, "size": sizes[run.pk]}
        if not may_delete(user, run.project, run.created_by_id):
            text = _("Only an admin of %(project)s, or an editor who launched it, may delete %(name)s.")
            text %= {"project": run.project.name, "name": run.name}
            done.append(Deletion(**about, outcome="refused", message=text, is_allowed=False))
            continue
        try:
            _check(run, needed.get(run.pk, ()), stop=stop)
            if is_dry_run:
                purge_at = now + timedelta(days=trash_days(run.project))
                done.append(
                    Deletion(**about, outcome=_outcome(run.state in ENDED or run.state == "queued"), purge_at=purge_at)
                )
                continue
            if run.state not in ENDED:
                request_stop(run_id=run.pk, user=user, now=now)  # one that waits in the queue has ended with it
            item = _put(run.pk, sizes[run.pk], user, stop=stop, now=now)
        except ChangeRefused as error:
            done.append(Deletion(**about, outcome="refused", message=str(error)))
        else:
            done.append(Deletion(**about, outcome=_outcome(item.state == "kept"), purge_at=item.purge_at))
    return done


def _outcome(is_there: bool) -> Outcome:
    return "trashed" if is_there else "stopping"


def _check(run: Run, needed_by: Collection[Run], *, stop: bool) -> None:
    """Let through a run that can go to the trash now, or with `stop` once it has ended. Raises: ChangeRefused."""
    if run.trashed_at is not None or TrashItem.objects.filter(kind="run", run_id=run.pk).exists():
        raise ChangeRefused("state", _("%(name)s is in the trash already.") % {"name": run.name}, is_conflict=True)
    if run.state not in ENDED and not stop:
        text = _("%(name)s is %(state)s. Stop it before you delete it.") % {"name": run.name, "state": run.state}
        raise ChangeRefused("state", text, is_conflict=True)
    if needed_by:
        text = _("%(name)s is needed: %(runs)s start from what it saved. Delete those first, or keep it.")
        about = {"name": run.name, "runs": call(needed_by, run.project_id)}
        raise ChangeRefused("state", text % about, is_conflict=True)


def settle_waiting(*, now: datetime) -> None:
    """Move to the trash what was to stop first and has ended by now."""
    for item in TrashItem.objects.filter(state="waiting").select_related("project"):
        with transaction.atomic():
            run = Run.objects.select_for_update().filter(pk=item.run_id).first()
            if run is None:
                item.delete()
            elif run.state in ENDED:
                size = sizes_of([run.pk])[run.pk]
                purge_at = now + timedelta(days=trash_days(item.project))
                waiting = TrashItem.objects.filter(pk=item.pk, state="waiting")
                values = {"bytes_here": size.here, "bytes_cluster": size.cluster, "purge_at": purge_at}
                if waiting.update(state="kept", **values):
                    _hide(run, now)


def restore(*, item_id: int, user: AbstractBaseUser, now: datetime) -> TrashItem:
    """Take something back out of the trash, whole, and return what stood there.

    Raises: NotAllowed; ChangeRefused once it is being deleted for good; TrashItem.DoesNotExist.
    """
    with transaction.atomic():
        item = _locked(item_id, user)
        if item.state == "purging":
            text = _("%(name)s is being deleted for good and cannot come back.") % {"name": item.run_name}
            raise ChangeRefused("state", text, is_conflict=True)
        _show(item, user, now)
        _record(item, user, "trash.restore")
        TrashItem.objects.filter(pk=item.pk).delete()
    return item


def purge_now(*, item_id: int, confirmed_name: str, user: AbstractBaseUser, now: datetime) -> TrashItem:
    """Delete something in the trash for good, now instead of when its time comes; the reconciler does it.

    Raises: NotAllowed; ChangeRefused if the name given is not the run's, or it still stops; TrashItem.DoesNotExist.
    """
    with transaction.atomic():
        item = _locked(item_id, user)
        if confirmed_name != item.run_name:
            text = _("%(given)r is not the run's name. Give %(name)r to delete it for good.")
            raise ChangeRefused("confirm", text % {"given": confirmed_name[:200], "name": item.run_name})
        if item.state == "waiting":
            text = _("%(name)s has not stopped yet. Delete it for good once it is in the trash.")
            raise ChangeRefused("state", text % {"name": item.run_name}, is_conflict=True)
        if item.state == "kept":
            TrashItem.objects.filter(pk=item.pk).update(purge_at=now)
            _record(item, user, "trash.purge")
    item.refresh_from_db()
    return item


def may_change(user: User, item: TrashItem) -> bool:
    """Return True if the person may take this back or delete it for good: as for deleting the run itself."""
    author = Run.objects.filter(pk=item.run_id).values_list("created_by_id", flat=True).first()
    return may_delete(user, item.project, None if item.is_by_rule else author)


def _put(run_id: str, size: RunSize, user: AbstractBaseUser, *, stop: bool, now: datetime) -> TrashItem:
    with transaction.atomic():
        run = Run.objects.select_for_update(of=("self",)).select_related("project").get(pk=run_id)
        _check(run, (), stop=stop)  # as it is now
        is_ended = run.state in ENDED
        item = TrashItem.objects.create(
            project=run.project,
            kind=TrashItem.Kind.RUN,
            run_id=run.pk,
            run_name=run.name,
            bytes_here=size.here,
            bytes_cluster=size.cluster,
            state="kept" if is_ended else "waiting",
            created_by_id=user.pk,
            created_at=now,
            purge_at=now + timedelta(days=trash_days(run.project)),
        )
        before = {"name": run.name, "state": run.state}
        after = {"trash": item.pk, "until": item.purge_at.isoformat()}
        record(actor=user, verb="run.delete", object_type="run", object_id=run.pk, before=before, after=after)
        if is_ended:
            _hide(run, now)
    return item


def _hide(run: Run, now: datetime) -> None:
    Run.objects.filter(pk=run.pk).update(trashed_at=now)
    call_off_merges(run_id=run.pk, now=now)
    transaction.on_commit(partial(run_changed, run.pk))


def _show(item: TrashItem, user: AbstractBaseUser, now: datetime) -> None:
    """Undo what hides the item's things."""
    if item.kind == TrashItem.Kind.RUN:
        Run.objects.filter(pk=item.run_id).update(trashed_at=None)
    elif item.kind == TrashItem.Kind.CAPTURE:
        Capture.with_trashed.filter(pk=item.capture_id).update(trashed_at=None)
    elif item.kind == TrashItem.Kind.CHECKPOINTS:
        mark_checkpoints(item.artifact_ids, is_trashed=False)
    if item.state != "waiting":
        text = {"run": "Taken back out of the trash"}.get(item.kind, f"Its {item.kind} were taken out of the trash")
        attempt = Run.objects.values_list("latest_attempt", flat=True).get(pk=item.run_id)
        about = {"run_id": item.run_id, "attempt": attempt, "at": now, "verb": "restored", "text": text}
        RunEvent.objects.create(**about, actor_id=user.pk)
        transaction.on_commit(partial(run_changed, item.run_id))


def mark_checkpoints(artifact_ids: Collection[int], *, is_trashed: bool) -> None:
    """Hide checkpoints from whoever looks for one to start from, or show them again. Call it in a transaction."""
    for row in Artifact.objects.select_for_update().filter(pk__in=artifact_ids):
        row.meta = {**row.meta, "trashed": is_trashed}
        row.save(update_fields=["meta"])


def _locked(item_id: int, user: AbstractBaseUser) -> TrashItem:
    item = TrashItem.objects.select_for_update(of=("self",)).select_related("project").get(pk=item_id)
    if not may_change(user, item):
        is_member = role(user, item.project) is not None
        text = _("Only an admin of the project, or an editor whose run it is, may do this.")
        raise NotAllowed(text, is_member=is_member)
    return item


def _record(item: TrashItem, user: AbstractBaseUser, verb: str) -> None:
    about = {"kind": item.kind, "name": item.run_name, "bytes": item.bytes_here + item.bytes_cluster}
    record(
        actor=user,
        verb=verb,
        object_type="run",
        object_id=item.run_id,
        label=item.run_name,
        project=item.project,
        before=about,
    )
