"""What attempts of a run do, told through the same functions as ingest's: train, save, end, begin again."""

from collections.abc import Iterable
from datetime import datetime

from jobs.ingest.store import AttemptCache, store
from jobs.models import Attempt, Run
from jobs.runs import lifecycle
from profiling import events as make
from tests.batches import delivery, metric
from tests.rows import NOW


def saved(step: int, *, attempt: int = 1, removed: bool = False) -> make.Event:
    """Return the word of the trainer that it wrote, or deleted, a checkpoint."""
    return make.artifact(
        f"checkpoint-{step}",
        artifact="checkpoint",
        path=f"checkpoints/step-{step}",
        attempt=attempt,
        step=step,
        size=0 if removed else 1000 + step,
        meta={"removed": True} if removed else {},
    )


def train(run: Run, steps: Iterable[int], *, attempt: int = 1, every: int = 20, reward: float = 0.0) -> None:
    """Let an attempt report its steps, in one batch, and save a checkpoint every so many."""
    events = []
    for step in steps:
        events.append(metric(step, attempt=attempt, **{"reward/mean": step / 100 + reward}))
        if step % every == 0:
            events.append(saved(step, attempt=attempt))
    batch = Attempt.objects.get(run=run, number=attempt).durable_batch + 1
    store([delivery(run.pk, batch, events, attempt=attempt)], memory=AttemptCache(), now=NOW)


def end(run: Run, state: str = "failed", *, attempt: int = 1, side: str = "trainer", now: datetime = NOW) -> None:
    """End an attempt by its runner's terminal event, with the clean-up report."""
    Attempt.objects.filter(run=run, number=attempt).update(submitted_at=NOW)
    cause = {"side": side, "text": "policy rank 1 was killed"} if state == "failed" else {}
    cleanup = {"processes_left": 0}
    assert lifecycle.finish(run_id=run.pk, attempt=attempt, state=state, cause=cause, cleanup=cleanup, now=now)


def lose_checkpoint(run: Run, attempt: int, *, now: datetime = NOW, said: str = "is not on this node, node-b") -> str:
    """End an attempt as a runner, or a trainer, does that cannot use the checkpoint to start from; return its words."""
    lifecycle.admit(run_id=run.pk, attempt=attempt, now=now)
    mine = Attempt.objects.filter(run=run, number=attempt)
    mine.update(submitted_at=now)
    text = f"checkpoint {mine.get().resume_step} of attempt {mine.get().resume_attempt} {said}"
    cause = {"side": "cluster", "field": "resume", "text": text}
    cleanup = {"processes_left": 0}
    assert lifecycle.finish(run_id=run.pk, attempt=attempt, state="failed", cause=cause, cleanup=cleanup, now=now)
    return text


def begin_training(run: Run, attempt: int) -> None:
    """Let an attempt train, taken out of the queue if nobody has yet."""
    lifecycle.admit(run_id=run.pk, attempt=attempt, now=NOW)
    assert lifecycle.mark_running(run_id=run.pk, attempt=attempt, now=NOW)
