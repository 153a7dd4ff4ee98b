"""Pin checkpoints, so that no trainer deletes them for newer ones, and release them."""

from datetime import datetime
from functools import partial

from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction
from django.utils.translation import gettext as _

from jobs.accounts.audit import record
from jobs.catalog.trainer import BUILT_IN
from jobs.models import ENDED, Artifact, Attempt, Run, RunEvent
from jobs.runs.annotate import ChangeRefused
from jobs.telemetry.notify import run_changed


def pin_checkpoint(
    *, run_id: str, attempt: int, step: int, is_pinned: bool, user: AbstractBaseUser | None, now: datetime
) -> bool:
    """Pin the checkpoint of a step of an attempt, or release it; return False if it is so already.

    An attempt that trains is told; of one that has ended nobody deletes any. Raises: ChangeRefused.
    """
    with transaction.atomic():
        run = Run.objects.select_for_update(of=("self",)).get(pk=run_id)
        rows = Artifact.objects.select_for_update().filter(run=run, type="checkpoint", attempt=attempt, step=step)
        checkpoint = rows.first()
        if checkpoint is None or checkpoint.meta.get("removed") or checkpoint.meta.get("trashed"):
            text = _("Attempt %(attempt)s has no checkpoint of step %(step)s (any more).")
            raise ChangeRefused("step", text % {"attempt": attempt, "step": step})
        if bool(checkpoint.meta.get("pinned")) == is_pinned:
            return False
        if run.state not in ENDED and attempt == run.latest_attempt:
            _tell_trainer(run, step, is_pinned, user, now)
        checkpoint.meta = {**checkpoint.meta, "pinned": is_pinned}
        checkpoint.save(update_fields=["meta"])
        done = "pinned" if is_pinned else "no longer pinned"
        about = {"attempt": attempt, "verb": "pin", "text": f"Checkpoint {step} {done}", "step": step}
        RunEvent.objects.create(run=run, at=now, actor_id=user.pk if user else None, **about)
        after = {"attempt": attempt, "step": step, "is_pinned": is_pinned}
        record(actor=user, verb="run.pin", object_type="run", object_id=run.pk, after=after)
        transaction.on_commit(partial(run_changed, run.pk))
    return True


def _tell_trainer(run: Run, step: int, is_pinned: bool, user: AbstractBaseUser | None, now: datetime) -> None:
    if run.spec.get("trainer", {}).get("name", BUILT_IN) != BUILT_IN:
        text = _(
            "The trainer of this run deletes its checkpoints by its own knobs while it trains. Pin when it has ended."
        )
        raise ChangeRefused("state", text, is_conflict=True)
    training = Attempt.objects.get(run=run, number=run.latest_attempt)
    payload = {"step": step, "is_pinned": is_pinned}
    training.commands.create(verb="pin", payload=payload, created_by_id=user.pk if user else None, created_at=now)
