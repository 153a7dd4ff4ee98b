"""Which part of each attempt belongs to the run's one clean history; the rest is a dead branch, kept and shown grey.

An attempt that resumes from the checkpoint of step s takes over after s: what earlier attempts did at later
steps is dead. At step s itself the later attempt's word counts where it has one.
"""

from collections.abc import Iterable, Mapping

from jobs.models import Attempt


def visible_through(run_id: str) -> dict[int, int | None]:
    """Return attempt -> the last step of it that belongs to the history (None: all; -1: nothing of it)."""
    rows = Attempt.objects.filter(run_id=run_id).order_by("number")
    return limits({row.number: row.resume_step if row.resume_attempt else None for row in rows})


def limits(resume_steps: Mapping[int, int | None]) -> dict[int, int | None]:
    """Return the same for attempts by number, each with the step it resumed from (None: from the start)."""
    found: dict[int, int | None] = {}
    limit: int | None = None
    for number in sorted(resume_steps, reverse=True):
        found[number] = limit
        begin = resume_steps[number]
        mine = -1 if begin is None else begin
        limit = mine if limit is None else min(limit, mine)
    return found


def is_visible(step: int, through: int | None) -> bool:
    """Return True if a step of an attempt with this limit belongs to the history."""
    return through is None or step <= through


def dead_attempts(through: Mapping[int, int | None]) -> Iterable[int]:
    """Return the attempts of which nothing is left in the history."""
    return (number for number, limit in through.items() if limit is not None and limit < 0)
