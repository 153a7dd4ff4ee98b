"""Which part of each attempt belongs to the run's one clean history; the rest is a dead branch, kept and shown grey.

An attempt that resumes from the checkpoint of step s of another one carries on that one's history up to s: what the
other did later is dead, and so is every attempt that the newest one does not descend from. At step s itself the later
attempt's word counts where it has one.
"""

from collections.abc import Collection, Iterable, Mapping

from jobs.models import Attempt

Origin = tuple[int, int] | None  # attempt and step of the checkpoint that an attempt began from; None: from the start


def visible_through(run_id: str) -> dict[int, int | None]:
    """Return attempt -> the last step of it that belongs to the history (None: all; -1: nothing of it)."""
    return limits_of([run_id])[run_id]


def limits_of(run_ids: Collection[str]) -> dict[str, dict[int, int | None]]:
    """Return run id -> what `visible_through` says of it, with one query."""
    attempts: dict[str, list[Attempt]] = {run_id: [] for run_id in run_ids}
    for attempt in Attempt.objects.filter(run_id__in=run_ids).order_by("number"):
        attempts[attempt.run_id].append(attempt)
    return {run_id: limits(origins(own)) for run_id, own in attempts.items()}


def origins(attempts: Iterable[Attempt]) -> dict[int, Origin]:
    """Return attempt -> where it began."""
    return {a.number: (a.resume_attempt, a.resume_step) if a.resume_attempt else None for a in attempts}


def limits(began: Mapping[int, Origin]) -> dict[int, int | None]:
    """Return the same as `visible_through` for attempts by number: from the newest one back along its descent."""
    by_attempt: dict[int, int | None] = dict.fromkeys(sorted(began), -1)
    number: int | None = max(began, default=None)
    limit: int | None = None
    while number is not None:
        by_attempt[number] = limit
        origin = began[number]
        if origin is None or origin[0] >= number or origin[0] not in began:
            break
        number = origin[0]
        limit = origin[1] if limit is None else min(limit, origin[1])
    return by_attempt


def is_visible(step: int, through: int | None) -> bool:
    """Return True if a step of an attempt with this limit belongs to the history."""
    return through is None or step <= through
