"""Downloads of one run, after a check of access: artifacts in pieces and in part (Range), logs as plain text."""

import asyncio
import os
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import NamedTuple

from asgiref.sync import sync_to_async
from django.http import Http404, HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import get_object_or_404
from django.utils.http import content_disposition_header, http_date, quote_etag
from django.utils.translation import gettext as _

from console.downloads.kept import keep_download
from jobs.accounts.access import NotAllowed, Role, require
from jobs.models import Artifact, LogChunk, Run
from jobs.retention.trash import RunInTrash
from jobs.telemetry.trashed import hidden_through

PIECE_BYTES = 256 * 1024
_RANGE = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})$")


class ByteRange(NamedTuple):
    """The bytes `first` to `last`, both included, of a file."""

    first: int
    last: int


def visible_run(request: HttpRequest, run_id: str) -> tuple[Run, Role]:
    """Return the run and the person's role; 404 for a run that does not exist or is not theirs to know of.

    Raises: Http404; RunInTrash, which is answered with its own page.
    """
    run = get_object_or_404(Run.objects.select_related("project", "created_by"), pk=run_id)
    try:
        held = require(request.user, run.project, "viewer")
    except NotAllowed as error:
        raise Http404(_("Not found, or you have no access.")) from error
    if run.trashed_at is not None:
        raise RunInTrash(run)
    return run, held


async def run_file(request: HttpRequest, run_id: str, artifact_id: int) -> HttpResponseBase:
    """Stream a ready artifact; `Range: bytes=a-b` gives a part, so that a broken download goes on."""
    if request.method not in ("GET", "HEAD"):
        return HttpResponse(status=405, headers={"Allow": "GET, HEAD"})
    artifact, path = await sync_to_async(_ready_file)(request, run_id, artifact_id)
    size = await asyncio.to_thread(lambda: path.stat().st_size)
    etag = quote_etag(artifact.sha256 or f"{artifact.pk}-{size}")
    wanted = request.headers.get("Range", "") if request.headers.get("If-Range", etag) == etag else ""
    part = parse_range(wanted, size=size)
    headers = {
        "Accept-Ranges": "bytes",
        "ETag": etag,
        "Last-Modified": http_date(artifact.created_at.timestamp()),
        "Content-Disposition": content_disposition_header(True, download_name(artifact)) or "attachment",
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "private, no-cache",
    }
    if part is None and wanted and _RANGE.match(wanted.strip()):
        return HttpResponse(status=416, headers={**headers, "Content-Range": f"bytes */{size}"})
    first, last = part or ByteRange(0, size - 1)
    headers["Content-Length"] = str(last - first + 1)
    if part is not None:
        headers["Content-Range"] = f"bytes {first}-{last}/{size}"
    status = 200 if part is None else 206
    if request.method == "HEAD":
        return HttpResponse(status=status, headers=headers, content_type="application/octet-stream")
    if first == 0:  # else a download that was broken off goes on
        await sync_to_async(keep_download)(request, "run", run_id, artifact.name)
    pieces = send_pieces(path, first, last)
    return StreamingHttpResponse(pieces, status=status, headers=headers, content_type="application/octet-stream")


def download_name(artifact: Artifact) -> str:
    """Return the name a browser saves it under: the run's id first, so that two runs' models stay apart."""
    name = re.sub(r"[^\w.+-]+|\.{2,}", "-", artifact.name).strip("-.") or "file"
    if (artifact.meta or {}).get("archive") == "tar" and not name.endswith(".tar"):
        name += ".tar"
    return f"{artifact.run_id}-{name}"


def parse_range(header: str, *, size: int) -> ByteRange | None:
    """Return the part that a Range header with one range asks for; None without one, or outside the file."""
    match = _RANGE.match(header.strip())
    if match is None or size == 0:
        return None
    first, last = match.groups()
    if not first and not last:
        return None
    if not first:
        return ByteRange(max(0, size - int(last)), size - 1) if int(last) > 0 else None
    part = ByteRange(int(first), min(int(last), size - 1) if last else size - 1)
    return part if part.first <= part.last else None


def _ready_file(request: HttpRequest, run_id: str, artifact_id: int) -> tuple[Artifact, Path]:
    run, _role = visible_run(request, run_id)
    artifact = get_object_or_404(Artifact, pk=artifact_id, run=run)
    path = artifact.stored_path
    if not artifact.is_ready or not path.is_file():
        raise Http404(_("%(name)s is not here yet. Try again when the page says ready.") % {"name": artifact.name})
    return artifact, path


async def send_pieces(path: Path, first: int, last: int) -> AsyncIterator[bytes]:
    """Yield the bytes `first` to `last` of a file, both included, for an answer that is streamed."""
    file = await asyncio.to_thread(path.open, "rb")
    try:
        await asyncio.to_thread(file.seek, first, os.SEEK_SET)
        left = last - first + 1
        while left > 0:
            piece = await asyncio.to_thread(file.read, min(PIECE_BYTES, left))
            if not piece:
                return  # shorter than it was: the client sees that bytes are missing
            left -= len(piece)
            yield piece
    finally:
        await asyncio.to_thread(file.close)


async def run_log(request: HttpRequest, run_id: str) -> HttpResponseBase:
    """Stream the log of one role, rank and stream (or of all) as plain text, oldest line first."""
    if request.method not in ("GET", "HEAD"):
        return HttpResponse(status=405, headers={"Allow": "GET, HEAD"})
    run, _role = await sync_to_async(visible_run)(request, run_id)
    role, rank, stream, attempt = (request.GET.get(name, "") for name in ("role", "rank", "stream", "attempt"))
    hidden = await sync_to_async(hidden_through)(run.pk, "logs")
    chunks = LogChunk.objects.filter(run=run, attempt__gt=hidden).order_by("attempt", "id")
    if role:
        chunks = chunks.filter(role=role)
    if rank.isdecimal() and len(rank) < 10:
        chunks = chunks.filter(rank=int(rank))
    if stream:
        chunks = chunks.filter(stream=stream)
    if attempt.isdecimal() and len(attempt) < 10:
        chunks = chunks.filter(attempt=int(attempt))

    async def lines() -> AsyncIterator[bytes]:
        async for chunk in chunks.aiterator(chunk_size=50):
            prefix = "" if role and rank else f"{chunk.role} {chunk.rank} {chunk.stream}: "
            yield "".join(_prefixed(prefix, chunk.text)).encode()

    name = "-".join(part for part in (run.pk, role, rank, stream) if part)
    await sync_to_async(keep_download)(request, "run", run_id, f"{name}.log")
    headers = {"Content-Disposition": content_disposition_header(True, f"{name}.log") or "attachment"}
    return StreamingHttpResponse(lines(), content_type="text/plain; charset=utf-8", headers=headers)


def _prefixed(prefix: str, text: str) -> Iterator[str]:
    for line in text.removesuffix("\n").split("\n"):
        yield f"{prefix}{line}\n"
