"""What is done about signs of divergence: a note, or a checkpoint and the end of the run."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from jobs.engine.failures.divergence import DivergenceGuards, Sign
from jobs.engine.failures.failure_cause import Diverged

if TYPE_CHECKING:
    from jobs.engine.checkpoints.saving import Saver


def end_if_diverged(
    guards: DivergenceGuards,
    signs: Sequence[Sign],
    *,
    saver: "Saver",
    note: Callable[[str], None],
    start: int,
    save: Callable[[], None],
) -> None:
    """Note the signs whose guard says so; for another keep the checkpoint from before it, `save` one, and raise.

    `start` is the step that the attempt goes on from: its checkpoint is one from before, too. Raises: Diverged.
    """
    saver.hold_before(guards.suspected_since())
    for sign in signs:
        if guards.policy_of(sign) == "note":
            note(f"{sign.text} The knob guard.{sign.guard} says what is done about it.")
            continue
        before = saver.hold_before(sign.since)
        if before is not None:
            saver.pin(before, is_pinned=True)
        elif 0 < start < sign.since:
            before = start  # in the attempt that this one goes on from
        save()
        way = (
            f"Checkpoint {before} is from before it and is kept: go on from there with a lower learning rate."
            if before is not None
            else "No checkpoint from before it is left; start again with a lower learning rate."
        )
        raise Diverged(f"Training has diverged. {sign.text} {way}", checkpoint=-1 if before is None else before)
