"""Read frames as the log they are: after the chunks that were made of the older ones, or from where a browser left off.

Nothing is missing and nothing comes twice, and no transaction is held.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Generic, TypeVar

from django.db.models import Q

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
class RunTail:
    """What no chunk of a run holds yet: its frames above `folded`, the run complete through `through_seq`."""

    folded: int
    frames: list[FrameMessage]
    through_seq: int


class WasFolded(Exception):
    """The run was compacted while it was read: what was read of it does not fit together."""


def read_tails(run_ids: Collection[str]) -> dict[str, RunTail]:
    """Return run id -> its tail, with two queries. Read chunks afterwards, and `check` each of them against it."""
    folded = dict.fromkeys(run_ids, 0)
    behind = Q()
    for run_id, through, newest in Run.objects.filter(pk__in=run_ids).values_list("pk", "folded_seq", "seq"):
        folded[run_id] = through
        if newest > through:
            behind |= Q(run_id=run_id, seq__gt=through)
    tails = {run_id: RunTail(folded=seq, frames=[], through_seq=seq) for run_id, seq in folded.items()}
    if behind:
        rows = Frame.objects.filter(behind).order_by("run_id", "seq").values_list("run_id", "seq", "payload")
        for run_id, seq, payload in rows:
            own = tails[run_id]
            tails[run_id] = RunTail(folded=own.folded, frames=own.frames, through_seq=seq)
            own.frames.append(decode_frame(payload))
    return tails


def read_until_whole(read: Callable[[], T]) -> T:
    """Return what `read` returns, which raises WasFolded where it has to read again."""
    for _ in range(_TRIES):
        try:
            return read()
        except WasFolded:
            continue
    raise RuntimeError(f"runs were compacted {_TRIES} times while they were read")


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
