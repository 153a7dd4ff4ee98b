"""Read frames as the log they are: what a browser that comes back has missed."""

from dataclasses import dataclass

from jobs.models import Frame, Run

MAX_MISSED = 3000  # frames; beyond that loading the series again is cheaper
READ_AT_ONCE = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class MissedFrames:
    """The next frames above a number, oldest first. `newest` is the run's newest; `is_folded`: they are gone."""

    frames: tuple[tuple[int, str], ...]  # seq, JSON text
    newest: int
    is_folded: bool = False


def newest_seq(run_id: str) -> int | None:
    """Return the number of the run's newest frame, 0 before the first one, None if there is no such run."""
    return Run.objects.values_list("seq", flat=True).filter(pk=run_id).first()


def missed(*, run_id: str, after: int) -> MissedFrames:
    """Return up to 100 frames above `after`, without a hole."""
    newest = newest_seq(run_id) or 0
    if after >= newest:
        # A number from before the database was replaced by an older copy: nothing of it can be trusted.
        return MissedFrames(frames=(), newest=newest, is_folded=after > newest)
    if newest - after > MAX_MISSED:
        return MissedFrames(frames=(), newest=newest, is_folded=True)
    rows = Frame.objects.filter(run_id=run_id, seq__gt=after).order_by("seq")[:READ_AT_ONCE]
    frames = tuple((seq, bytes(payload).decode()) for seq, payload in rows.values_list("seq", "payload"))
    is_folded = not frames or frames[0][0] != after + 1
    return MissedFrames(frames=() if is_folded else frames, newest=newest, is_folded=is_folded)
