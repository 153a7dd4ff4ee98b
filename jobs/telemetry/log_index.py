"""What tells, of a megabyte of log lines at a time, that a search need not read it: their trigrams and worst level.

The trigrams of the lower-case text stand in a fixed table of bits, so a literal that is there is always found, and one
that is not is taken to be there now and then. What no index covers is read.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from django.db import transaction
from django.db.models import Max

from jobs.catalog.log_level import PATTERNS
from jobs.models import LogChunk, LogIndex
from jobs.telemetry.line_pattern import LinePattern, level_pattern

INDEX_CHARS = 1 << 20  # of text that one row stands for
MOST_AT_ONCE = 16  # rows in one call: ingest has other things to do
_BITS = 1 << 17
_ROWS_AT_ONCE = 500
_SPREAD = np.uint64(0x9E3779B97F4A7C15)  # Fibonacci hashing
_SHIFT = np.uint64(64 - 17)

Places = npt.NDArray[np.uint64]


class ChunkRange(NamedTuple):
    """Chunks from `first` to `last`, both included; `may_match` is False where no line can match."""

    first: int
    last: int
    may_match: bool


def index_log(run_id: str) -> int:
    """Index what of the run's log has become a whole megabyte since the last time, and return how many rows came."""
    through = LogIndex.objects.filter(run_id=run_id).aggregate(last=Max("last_chunk"))["last"] or 0
    rows = LogChunk.objects.filter(run_id=run_id, pk__gt=through).order_by("pk").values_list("pk", "text")
    made: list[LogIndex] = []
    texts: list[str] = []
    first = size = 0
    for pk, text in rows.iterator(chunk_size=_ROWS_AT_ONCE):
        first = first or pk
        texts.append(text)
        size += len(text)
        if len(made) == MOST_AT_ONCE:
            break
        if size >= INDEX_CHARS:
            made.append(_row(run_id, first, pk, "\n".join(texts)))
            texts, first, size = [], 0, 0
    with transaction.atomic():
        LogIndex.objects.bulk_create(made)
    return len(made)


def forget_index(run_id: str) -> None:
    """Delete the rows of lines that are gone."""
    oldest = LogChunk.objects.filter(run_id=run_id).order_by("pk").values_list("pk", flat=True).first()
    gone = LogIndex.objects.filter(run_id=run_id)
    (gone if oldest is None else gone.filter(last_chunk__lt=oldest)).delete()


def spans(
    run_id: str, low: int, high: int, patterns: Sequence[LinePattern], *, level: str, is_forward: bool
) -> Iterator[ChunkRange]:
    """Yield all places from `low` to `high` in order, and whether a line there may match all patterns."""
    indexed = LogIndex.objects.filter(run_id=run_id, last_chunk__gte=low, first_chunk__lte=high)
    rows = indexed.order_by("first_chunk" if is_forward else "-first_chunk").values_list(
        "first_chunk", "last_chunk", "has_error", "has_warning", "trigrams"
    )
    wanted = [[[_places(text) for text in texts] for texts in pattern.literals] for pattern in patterns]
    next_place = low if is_forward else high
    for first, last, has_error, has_warning, trigrams in rows.iterator(chunk_size=_ROWS_AT_ONCE):
        if is_forward and first > next_place:
            yield ChunkRange(next_place, first - 1, may_match=True)
        if not is_forward and last < next_place:
            yield ChunkRange(last + 1, next_place, may_match=True)
        has_level = {"error": has_error, "warning": has_error or has_warning}.get(level, True)
        yield ChunkRange(max(first, low), min(last, high), may_match=has_level and _may_hold(trigrams, wanted))
        next_place = last + 1 if is_forward else first - 1
    if low <= next_place <= high:
        yield (
            ChunkRange(next_place, high, may_match=True) if is_forward else ChunkRange(low, next_place, may_match=True)
        )


def _row(run_id: str, first: int, last: int, text: str) -> LogIndex:
    bits = np.zeros(_BITS, dtype=np.uint8)
    bits[_places(text)] = 1
    return LogIndex(
        run_id=run_id,
        first_chunk=first,
        last_chunk=last,
        has_error=level_pattern(PATTERNS["error"]).in_text(text),
        has_warning=level_pattern(PATTERNS["warning"]).in_text(text),
        trigrams=np.packbits(bits).tobytes(),
    )


def _places(text: str) -> Places:
    """Return the bits of a text's trigrams, as bytes of its lower case; `ſ` is an s to an expression."""
    letters = np.frombuffer(text.lower().replace("ſ", "s").encode("utf-8", "replace"), dtype=np.uint8).astype(np.uint64)
    if len(letters) < 3:
        return np.zeros(0, dtype=np.uint64)
    trigrams = (letters[:-2] << np.uint64(16)) | (letters[1:-1] << np.uint64(8)) | letters[2:]
    return np.unique(trigrams) * _SPREAD >> _SHIFT


def _may_hold(trigrams: bytes | memoryview, wanted: Sequence[Sequence[Sequence[Places]]]) -> bool:
    table = np.frombuffer(trigrams, dtype=np.uint8)
    return all(
        not alternatives or any(all(_has(table, places) for places in literals) for literals in alternatives)
        for alternatives in wanted
    )


def _has(table: npt.NDArray[np.uint8], places: Places) -> bool:
    return bool(((table[places >> np.uint64(3)] >> (np.uint64(7) - (places & np.uint64(7)))) & 1).all())
