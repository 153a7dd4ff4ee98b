"""Do one thing to many runs, each by itself, and say which were changed, which refused, and why."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.contrib.auth.models import AbstractBaseUser

from jobs.accounts.access import NotAllowed
from jobs.models import LIVE, Project, Run, TrashItem
from jobs.retention.deletion import delete_runs, restore
from jobs.runs.annotate import ChangeRefused, annotate_run
from jobs.runs.lifecycle import STOP_GRACE, request_stop
from jobs.runs.resume import ResumeRefused
from jobs.runs.undo_stop import undo_stop

AT_ONCE = 500  # runs of one request
Verb = Callable[[Run, Sequence[str], AbstractBaseUser, datetime], "bool | tuple[str, ...]"]
"""Changes a run, and returns False or () if it was so already; of verbs on tags those that it changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkRefusal:
    """A run that was not changed, and why."""

    id: str
    name: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkStep:
    """A verb on runs, with the tags that it is about."""

    verb: str
    tags: tuple[str, ...]
    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkDone:
    """Ids of the runs that were changed (none that was so already), those that refused, and the steps that undo it."""

    done: tuple[str, ...]
    refused: tuple[BulkRefusal, ...]
    undo: tuple[BulkStep, ...]


def change_runs(
    *, project: Project, verb: str, ids: Sequence[str], tags: Sequence[str], user: AbstractBaseUser, now: datetime
) -> BulkDone:
    """Do `verb` (one of `VERBS`) to those of the runs that are the project's; `tags` are for tag and untag.

    The caller has checked that the person may edit in the project.
    """
    rows = Run.objects.filter(project=project, pk__in=ids[:AT_ONCE])
    if verb != "undelete":
        rows = rows.filter(trashed_at=None)
    done: dict[tuple[str, ...], list[str]] = {}
    refused: list[BulkRefusal] = []
    for run in rows.select_related("project"):
        try:
            changed = VERBS[verb](run, tags, user, now)
        except (ChangeRefused, NotAllowed, ResumeRefused) as error:
            refused.append(BulkRefusal(id=run.pk, name=run.name, message=str(error)))
        else:
            if changed:
                done.setdefault(changed if isinstance(changed, tuple) else (), []).append(run.pk)
    back = UNDO.get(verb, "")
    return BulkDone(
        done=tuple(pk for some in done.values() for pk in some),
        refused=tuple(refused),
        undo=tuple(BulkStep(verb=back, tags=own, ids=tuple(some)) for own, some in done.items() if back),
    )


def _tag(run: Run, tags: Sequence[str], user: AbstractBaseUser, now: datetime) -> tuple[str, ...]:
    after = annotate_run(run_id=run.pk, changes={"tags": [*run.tags, *tags]}, user=user, now=now).tags
    return tuple(tag for tag in after if tag not in run.tags)


def _untag(run: Run, tags: Sequence[str], user: AbstractBaseUser, now: datetime) -> tuple[str, ...]:
    remaining = [tag for tag in run.tags if tag not in tags]
    annotate_run(run_id=run.pk, changes={"tags": remaining}, user=user, now=now)
    return tuple(tag for tag in run.tags if tag in tags)


def _archive(run: Run, _tags: Sequence[str], user: AbstractBaseUser, now: datetime) -> bool:
    return run.archived_at is None and bool(
        annotate_run(run_id=run.pk, changes={"is_archived": True}, user=user, now=now)
    )


def _restore(run: Run, _tags: Sequence[str], user: AbstractBaseUser, now: datetime) -> bool:
    return run.archived_at is not None and bool(
        annotate_run(run_id=run.pk, changes={"is_archived": False}, user=user, now=now)
    )


def _stop(run: Run, _tags: Sequence[str], user: AbstractBaseUser, now: datetime) -> bool:
    return run.state in ("queued", *LIVE) and request_stop(run_id=run.pk, user=user, now=now, grace=STOP_GRACE)


def _undo_stop(run: Run, _tags: Sequence[str], user: AbstractBaseUser, now: datetime) -> bool:
    undo_stop(run_id=run.pk, user=user, now=now)
    return True


def _delete(run: Run, _tags: Sequence[str], user: AbstractBaseUser, now: datetime) -> bool:
    done = delete_runs(runs=[run], user=user, stop=True, now=now)[0]
    if done.outcome == "refused":
        raise ChangeRefused("state", done.message)
    return True


def _undelete(run: Run, _tags: Sequence[str], user: AbstractBaseUser, now: datetime) -> bool:
    item = TrashItem.objects.filter(kind=TrashItem.Kind.RUN, run_id=run.pk).first()
    return item is not None and bool(restore(item_id=item.pk, user=user, now=now))


VERBS: Mapping[str, Verb] = {
    "tag": _tag,
    "untag": _untag,
    "archive": _archive,
    "restore": _restore,
    "stop": _stop,
    "undo_stop": _undo_stop,
    "delete": _delete,
    "undelete": _undelete,
}
UNDO = {
    "tag": "untag",
    "untag": "tag",
    "archive": "restore",
    "restore": "archive",
    "stop": "undo_stop",
    "undo_stop": "stop",
    "delete": "undelete",
    "undelete": "delete",
}
"""What takes a verb back; a stop only for `STOP_GRACE`."""
