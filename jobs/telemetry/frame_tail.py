"""Read chunks and the frames that follow them as one: nothing missing, nothing twice, without holding a transaction."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from jobs.models import Frame, Run
from jobs.telemetry.frames import decode_frame

T = TypeVar("T")

_TRIES = 10  # each one lost means that the run was compacted meanwhile, which takes minutes to happen again


@dataclass(frozen=True, slots=True, kw_only=True)
class WithTail(Generic[T]):
    """What chunks hold, and the frames above them; together the run through `through_seq`."""

    chunks: T
    frames: list[dict[str, Any]]
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
