"""Files through the ingest endpoints: pieces of artifacts come in, uploaded data and ready artifacts go out."""

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from asgiref.sync import sync_to_async
from django.http import HttpRequest, JsonResponse, QueryDict, StreamingHttpResponse
from django.http.response import HttpResponseBase

from console.api.ingest.access import RequestRefused, fenced, refusal, runner_view
from jobs.captures import artifacts as files
from jobs.ingest.batches import name_problem
from jobs.models import Attempt, Upload
from jobs.preflight.preview import uploads_dir

READ_BYTES = 256 * 1024
_SHA256 = re.compile(r"[0-9a-f]{64}")


@runner_view("GET")
async def uploaded(request: HttpRequest, attempt: Attempt, sha256: str) -> HttpResponseBase:
    """Send a file that people uploaded to the run's project, as long as the attempt may still report."""
    if (answer := fenced(request, attempt)) is not None:
        return answer
    is_known = await sync_to_async(Upload.objects.filter(project_id=attempt.run.project_id, sha256=sha256).exists)()
    file = uploads_dir() / sha256
    if not is_known or not _SHA256.fullmatch(sha256) or not file.is_file():
        return refusal(404, f"No file with the checksum {sha256} was uploaded to this run's project.")
    return _stream(file)


@runner_view("GET")
async def content(_request: HttpRequest, attempt: Attempt, name: str) -> HttpResponseBase:
    """Send a ready file."""
    found = await sync_to_async(files.ready_file)(run_id=attempt.run_id, attempt=attempt.number, name=name)
    if found is None:
        return refusal(404, f"There is no ready file {name!r}.")
    return _stream(found[1], sha256=found[0].sha256)


@runner_view("GET", "PUT")
async def file(request: HttpRequest, attempt: Attempt, name: str) -> HttpResponseBase:
    """Say how much of a file is here, or take its next piece."""
    if problem := name_problem(name):
        raise RequestRefused(problem)
    if request.method == "GET":
        have = await sync_to_async(files.progress)(run_id=attempt.run_id, attempt=attempt.number, name=name)
        return JsonResponse({"received": have.received, "is_ready": have.is_ready})
    if (answer := fenced(request, attempt)) is not None:
        return answer
    if int(request.headers.get("Content-Length") or 0) > files.MAX_PIECE_BYTES:
        raise RequestRefused(f"A piece may have {files.MAX_PIECE_BYTES} bytes. Send smaller ones.", status=413)
    piece = _piece(request.GET, request.body)
    try:
        have = await sync_to_async(files.receive)(run_id=attempt.run_id, attempt=attempt.number, name=name, piece=piece)
    except files.OffsetWrong as error:
        return JsonResponse({"received": error.received, "is_ready": False, "problems": [str(error)]}, status=409)
    except files.ChecksumWrong as error:
        return JsonResponse({"received": 0, "is_ready": False, "problems": [str(error)]}, status=422)
    except files.DiskFull:
        return refusal(507, "The console's disk is full. Free some space there; what arrived so far is kept.")
    return JsonResponse({"received": have.received, "is_ready": have.is_ready})


def _piece(query: QueryDict, data: bytes) -> files.Piece:
    """Return the piece, every field checked. Raises: RequestRefused."""
    size, offset = _number(query, "size", files.MAX_FILE_BYTES), _number(query, "offset", files.MAX_FILE_BYTES)
    step = _number(query, "step", 2**31 - 1, low=-1, default="-1")
    sha256 = query.get("sha256", "")
    if not _SHA256.fullmatch(sha256):
        raise RequestRefused(f"sha256: {sha256!r} is not 64 hexadecimal digits in lower case.")
    kind, path = query.get("type", ""), query.get("path", "")
    if not 1 <= len(kind) <= 20 or not 0 <= len(path) <= 500 or "\0" in kind + path:
        raise RequestRefused("type: must have 1 to 20 characters, and path at most 500.")
    if len(data) > files.MAX_PIECE_BYTES:
        raise RequestRefused(f"A piece may have {files.MAX_PIECE_BYTES} bytes. Send smaller ones.", status=413)
    if offset + len(data) > size:
        raise RequestRefused(f"offset: {offset} and {len(data)} bytes go past the announced size of {size}.")
    if not data and offset < size:
        raise RequestRefused("The piece is empty. Send the bytes from offset on.")
    return files.Piece(
        offset=offset, size=size, sha256=sha256, type=kind, step=step, path=path, meta=_meta(query), data=data
    )


def _number(query: QueryDict, name: str, high: int, *, low: int = 0, default: str = "") -> int:
    given = query.get(name, default)
    if not re.fullmatch(r"-?[0-9]{1,18}", given) or not low <= int(given) <= high:
        raise RequestRefused(f"{name}: {given!r} is not a whole number from {low} to {high}.")
    return int(given)


def _meta(query: QueryDict) -> dict[str, Any]:
    given = query.get("meta") or "{}"
    try:
        meta = json.loads(given, parse_constant=_refuse_constant)
        is_storable = "\\u0000" not in given and bool(json.dumps(meta, ensure_ascii=False, allow_nan=False).encode())
    except (ValueError, RecursionError):
        is_storable = False
    if not is_storable or not isinstance(meta, dict):
        raise RequestRefused("meta: must be a JSON object, without NaN, NUL, or halves of surrogate pairs.")
    return meta


def _refuse_constant(name: str) -> float:
    raise ValueError(name)


def _stream(path: Path, *, sha256: str = "") -> StreamingHttpResponse:
    answer = StreamingHttpResponse(_read(path), content_type="application/octet-stream")
    answer["Content-Length"] = str(path.stat().st_size)
    if sha256:
        answer["X-Content-SHA256"] = sha256
    return answer


async def _read(path: Path) -> AsyncIterator[bytes]:
    with path.open("rb") as source:
        while block := await sync_to_async(source.read, thread_sensitive=False)(READ_BYTES):
            yield block
