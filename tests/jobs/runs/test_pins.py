"""Pinned checkpoints: told to the trainer, kept in mind, refused with a sentence."""

from typing import Any

import pytest

from jobs.ingest.store import AttemptCache, store
from jobs.models import Artifact, Attempt, AuditEvent, Command, Run, RunEvent
from jobs.runs import lifecycle
from jobs.runs.annotate import ChangeRefused
from jobs.runs.checkpoints import list_checkpoints, newest_visible
from jobs.runs.pins import pin_checkpoint
from tests.attempts import end, saved, train
from tests.batches import delivery
from tests.rows import NOW, make_run

pytestmark = pytest.mark.django_db


def trained(**fields: Any) -> Run:
    run = make_run(state="running", **fields)
    train(run, range(1, 45))
    return run


def pin(run: Run, step: int = 20, *, is_pinned: bool = True) -> bool:
    return pin_checkpoint(run_id=run.pk, attempt=1, step=step, is_pinned=is_pinned, user=None, now=NOW)


def say(run: Run, *events: Any) -> None:
    batch = Attempt.objects.get(run=run).durable_batch + 1
    store([delivery(run.pk, batch, events)], memory=AttemptCache(), now=NOW)


def test_a_pin_is_told_to_the_trainer_once_and_holds_until_it_is_released() -> None:
    run = trained()

    assert pin(run)
    assert not pin(run)
    assert [c.is_pinned for c in list_checkpoints(run)] == [False, True]
    say(run, saved(20))  # told again: the pin is a person's and stays
    assert Artifact.objects.get(run=run, step=20).meta["pinned"]
    assert pin(run, is_pinned=False)

    payloads = [command.payload for command in Command.objects.filter(verb="pin").order_by("pk")]
    assert payloads == [{"step": 20, "is_pinned": True}, {"step": 20, "is_pinned": False}]
    assert [e.text for e in RunEvent.objects.filter(run=run, verb="pin").order_by("pk")] == [
        "Checkpoint 20 pinned",
        "Checkpoint 20 no longer pinned",
    ]
    assert AuditEvent.objects.filter(verb="run.pin").count() == 2


def test_one_that_was_deleted_meanwhile_is_not_shown_as_pinned() -> None:
    run = trained()
    pin(run)

    say(run, saved(20, removed=True))

    assert [c.step for c in list_checkpoints(run)] == [40]
    with pytest.raises(ChangeRefused, match=r"Attempt 1 has no checkpoint of step 20 \(any more\)."):
        pin(run)


def test_after_the_end_a_pin_is_kept_without_a_command() -> None:
    run = trained()
    end(run, "stopped")

    assert pin(run)

    assert not Command.objects.exists()
    assert list_checkpoints(run)[1].is_pinned


def test_what_was_saved_after_a_divergence_is_not_offered_first() -> None:
    run = trained()
    cause = {"side": "trainer", "text": "Training has diverged.", "checkpoint": 20}
    lifecycle.finish(run_id=run.pk, attempt=1, state="failed", cause=cause, cleanup={}, now=NOW)

    assert [(c.step, c.is_after_divergence) for c in list_checkpoints(run)] == [(40, True), (20, False)]
    newest = newest_visible(run)
    assert newest is not None
    assert newest.step == 20


def test_another_trainer_that_trains_is_not_asked() -> None:
    run = trained(spec={"trainer": {"name": "verl"}})

    with pytest.raises(ChangeRefused, match="deletes its checkpoints by its own knobs"):
        pin(run)
    assert not Artifact.objects.get(run=run, step=20).meta.get("pinned")
