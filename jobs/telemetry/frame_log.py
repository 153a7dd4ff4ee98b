"""Read frames as the log they are: after the chunks that were made of the older ones, or from where a browser left off.

Nothing is missing and nothing comes twice, and no transaction is held.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from jobs.models import Frame, Run
from jobs.telemetry.frames import FrameMessage, decode_frame

T = TypeVar("T")

MAX_MISSED = 3000  # frames; beyond that loading the series again is cheaper
READ_AT_ONCE = 100
_TRIES = 10  # each one lost means that the run was compacted meanwhile, which takes minutes to happen again


@dataclass(frozen=True, slots=True, kw_only=True)
class WithTail(Generic[T]):
    """What chunks hold, and the frames above them; together the run through `through_seq`."""

    chunks: T
    frames: list[FrameMessage]
    through_seq: int


def read_with_tail(run_id: str, read: Callable[[], tuple[T, int]]) -> WithTail[T]:
    """Return what `read` returns with the frames that are not in it.

    `read` gives its chunks and their highest `through_seq`. The order matters: first how far the run is compacted, then
    chunks, then frames. Chunks that go further were compacted in between, and all is read again; frames stay for
    minutes.
    """
    for _ in range(_TRIES):
        compacted = Run.objects.values_list("folded_seq", flat=True).get(pk=run_id)
        chunks, through = read()
        if through > compacted:
            continue
        rows = Frame.objects.filter(run_id=run_id, seq__gt=compacted).order_by("seq").values_list("seq", "payload")
        frames = []
        for seq, payload in rows:
            compacted = seq
            frames.append(decode_frame(payload))
        return WithTail(chunks=chunks, frames=frames, through_seq=compacted)
    raise RuntimeError(f"run {run_id} was compacted {_TRIES} times while it was read")


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
