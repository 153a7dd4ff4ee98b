"""Take the stop of a run back: what it asked for is not done yet, or can be made good."""

from datetime import datetime

from django.contrib.auth.models import AbstractBaseUser
from django.utils.translation import gettext as _

from jobs.models import Run
from jobs.runs.lifecycle import withdraw_stop
from jobs.runs.resume import ResumeRefused, queue_again


def undo_stop(*, run_id: str, user: AbstractBaseUser, now: datetime) -> None:
    """Let a run that is stopping go on, as long as its runner was not told; queue one again that had left the queue.

    Raises: ResumeRefused with a sentence where it is too late; Run.DoesNotExist.
    """
    if withdraw_stop(run_id=run_id, user=user, now=now):
        return
    run = Run.objects.get(pk=run_id)
    if run.state == "stopping":
        text = _("%(name)s is stopping already. Once it has ended, resume it from the checkpoint that it saves.")
        raise ResumeRefused("state", text % {"name": run.name}, is_conflict=True)
    queue_again(run_id=run_id, user=user, now=now)
