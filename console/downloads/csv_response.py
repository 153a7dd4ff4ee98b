"""Lines as a download (CSV, JSON lines), written while it is sent: an export may be larger than memory."""

import time
from collections.abc import AsyncIterator, Iterable, Iterator

from asgiref.sync import sync_to_async
from django.http import StreamingHttpResponse
from django.utils.http import content_disposition_header

PIECE_CHARS = 64 * 1024
PIECE_SECONDS = 1.0  # after which it is looked whether somebody still reads


def csv_answer(lines: Iterable[str], *, name: str, content_type: str = "text/csv") -> StreamingHttpResponse:
    """Return the lines as the file `name`. Under ASGI, Django would first collect what it is given as an iterator."""
    headers = {"Content-Disposition": content_disposition_header(True, name) or "attachment"}
    return StreamingHttpResponse(_pieces(iter(lines)), headers=headers, content_type=f"{content_type}; charset=utf-8")


async def _pieces(lines: Iterator[str]) -> AsyncIterator[bytes]:
    is_over = False
    while not is_over:
        piece, is_over = await sync_to_async(_piece)(lines)
        if piece:
            yield piece


def _piece(lines: Iterator[str]) -> tuple[bytes, bool]:
    """Return the next lines, about PIECE_CHARS, and whether they were the last. Reads the database."""
    taken, num_chars, until = [], 0, time.monotonic() + PIECE_SECONDS
    for line in lines:
        taken.append(line)
        num_chars += len(line)
        if num_chars >= PIECE_CHARS or time.monotonic() >= until:
            return "".join(taken).encode(), False
    return "".join(taken).encode(), True
