"""The ingest endpoints, `/ingest/<run>/<attempt>/...` (docs/develop/protocol.md, section 3).

Pieces of artifacts come in, uploaded data and ready artifacts go out.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from weakref import WeakKeyDictionary

import redis.asyncio
from asgiref.sync import sync_to_async
from django.db import transaction
from django.db.models import Q
from django.http import HttpRequest, JsonResponse, QueryDict, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.urls import path
from django.utils import timezone

from console.api.ingest.access import IngestRefused, fenced, not_taken, refusal, runner_view
from jobs.captures import artifacts as files
from jobs.captures import captures
from jobs.ingest.batches import MAX_BODY_BYTES, AnsweredCommand, BatchInvalid, EventBatch, name_problem, parse_batch
from jobs.ingest.inbox import accept
from jobs.models import Attempt, Command, Merge, Upload
from jobs.preflight.inputs import uploads_dir
from jobs.runs.environment import NotHandedOut, announced, hand_out
from jobs.runs.merges import MergeOver, merge_of, receive_model, settle_merge
from jobs.runs.prompt_model import settle
from jobs.telemetry.attempt_spec import spec_json
from jobs.telemetry.streams import async_client

TOUCH_EVERY = timedelta(seconds=1)
READ_BYTES = 256 * 1024
MERGE_HEADER = "X-Pitwall-Merge"
_SHA256 = re.compile(r"[0-9a-f]{64}")

_clients: WeakKeyDictionary[asyncio.AbstractEventLoop, redis.asyncio.Redis] = WeakKeyDictionary()


def _redis() -> redis.asyncio.Redis:
    """Return this event loop's client; its connections cannot be used from another."""
    loop = asyncio.get_running_loop()
    if loop not in _clients:
        _clients[loop] = async_client()
    return _clients[loop]


@runner_view("GET")
async def launch(request: HttpRequest, attempt: Attempt) -> HttpResponseBase:
    """Return what the runner is to run, and which uploaded files it needs."""
    if (answer := fenced(request, attempt)) is not None:
        return answer
    return JsonResponse(
        {
            "run": attempt.run_id,
            "attempt": attempt.number,
            "spec": spec_json(attempt),
            "inputs": await sync_to_async(_inputs)(attempt),
            "resume": _resume(attempt),
            "environment": await sync_to_async(announced)(attempt),
            "commands": await sync_to_async(_waiting_commands)(attempt),
        }
    )


@runner_view("POST")
async def environment(request: HttpRequest, attempt: Attempt) -> HttpResponseBase:
    """Hand the attempt's secrets to the runner that asks first; it names itself by a key that it made up."""
    if (answer := fenced(request, attempt)) is not None:
        return answer
    if not isinstance(key := _object(request).get("key"), str):
        raise IngestRefused("The body must be a JSON object with a text, key.")
    try:
        return JsonResponse({"secrets": await sync_to_async(hand_out)(attempt, key=key)})
    except NotHandedOut as error:
        raise IngestRefused(str(error), status=403) from error


def _resume(attempt: Attempt) -> dict[str, int] | None:
    """Return whose checkpoint the attempt starts from; None: from the start."""
    return {"attempt": attempt.resume_attempt, "step": attempt.resume_step} if attempt.resume_attempt else None


def _inputs(attempt: Attempt) -> list[dict[str, str | int]]:
    data_id = str(attempt.run.spec.get("data", {}).get("id", ""))
    uploads = Upload.objects.filter(project_id=attempt.run.project_id, sha256=data_id.removeprefix("upload:"))
    if not data_id.startswith("upload:"):
        return []
    return [{"sha256": u.sha256, "file_name": u.file_name, "size": u.size} for u in uploads]


@runner_view("POST")
async def events(request: HttpRequest, attempt: Attempt) -> HttpResponseBase:
    """Take a batch or a heartbeat; answer what is durable, what is expected next, and the commands."""
    if (answer := fenced(request, attempt)) is not None:
        return answer
    if int(request.headers.get("Content-Length") or 0) > MAX_BODY_BYTES:
        return refusal(413, f"A batch may have {MAX_BODY_BYTES} bytes. Cut smaller ones.")
    try:
        batch = parse_batch(request.body, attempt=attempt.number)
    except BatchInvalid as error:
        return JsonResponse({"problems": list(error.sentences), "events": list(error.events)}, status=422)
    commands = await sync_to_async(_note_contact)(attempt, batch)
    accepted = await accept(
        _redis(), batch, run_id=attempt.run_id, attempt=attempt.number, durable_through=attempt.durable_batch
    )
    return JsonResponse({"durable_through": attempt.durable_batch, "expect": accepted.expect, "commands": commands})


def _note_contact(attempt: Attempt, batch: EventBatch) -> list[dict[str, object]]:
    """Note that the runner reported and what it answered; return the commands it has not answered yet."""
    now = timezone.now()
    if attempt.last_contact_at is None or now - attempt.last_contact_at >= TOUCH_EVERY:
        Attempt.objects.filter(pk=attempt.pk).update(last_contact_at=now)
    for answered in batch.answered:
        _settle_command(attempt, answered)
    return _waiting_commands(attempt)


def _waiting_commands(attempt: Attempt) -> list[dict[str, object]]:
    due = Q(not_before=None) | Q(not_before__lte=timezone.now())
    waiting = Command.objects.filter(due, attempt=attempt, delivered_at=None).order_by("pk")
    return [{"number": c.pk, "verb": c.verb, "payload": c.payload} for c in waiting]


def _settle_command(attempt: Attempt, answered: AnsweredCommand) -> None:
    now = timezone.now()
    with transaction.atomic():
        waiting = Command.objects.filter(attempt=attempt, pk=answered.number, delivered_at=None)
        if waiting.update(delivered_at=now, answer=answered.answer):
            captures.answered(Command.objects.get(pk=answered.number), answered.answer, now=now)


@runner_view("POST")
async def answer(request: HttpRequest, attempt: Attempt, answer_id: int) -> HttpResponseBase:
    """Keep what a trained model said to a prompt."""
    body = _object(request)
    text, token_ids, problem = (body.get(k, d) for k, d in (("text", ""), ("token_ids", []), ("problem", "")))
    if not isinstance(text, str) or not isinstance(problem, str):
        raise IngestRefused("text, problem: must be texts.")
    if not isinstance(token_ids, list) or not all(type(t) is int for t in token_ids):
        raise IngestRefused("token_ids: must be a list of whole numbers.")
    await sync_to_async(settle)(
        answer_id=answer_id,
        run_id=attempt.run_id,
        text=_storable(text),
        token_ids=token_ids,
        problem=_storable(problem),
        now=timezone.now(),
    )
    return JsonResponse({})


def _object(request: HttpRequest) -> dict[str, object]:
    """Return the body. Raises: IngestRefused if it is no JSON object."""
    try:
        body = json.loads(request.body)
    except (ValueError, RecursionError) as error:
        raise IngestRefused(f"The body is not JSON: {error}.") from error
    if not isinstance(body, dict):
        raise IngestRefused("The body must be a JSON object.")
    return body


def _storable(text: str) -> str:
    """Return the text without what no database takes: NUL, and halves of surrogate pairs."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


# -- files --


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
    file_and_path = await sync_to_async(files.ready_file)(run_id=attempt.run_id, attempt=attempt.number, name=name)
    if file_and_path is None:
        return refusal(404, f"There is no ready file {name!r}.")
    return _stream(file_and_path[1], sha256=file_and_path[0].sha256)


@runner_view("GET", "PUT")
async def file(request: HttpRequest, attempt: Attempt, name: str) -> HttpResponseBase:
    """Say how much of a file is here, or take its next piece."""
    if problem := name_problem(name):
        raise IngestRefused(problem)
    if request.method == "GET":
        have = await sync_to_async(files.progress)(run_id=attempt.run_id, attempt=attempt.number, name=name)
        return JsonResponse({"received": have.received, "is_ready": have.is_ready})
    merge = await _merge(request, attempt) if MERGE_HEADER in request.headers else None
    if merge is None or name != merge.file_name:
        if MERGE_HEADER in request.headers:
            return not_taken(attempt)
        if (answer := fenced(request, attempt)) is not None:
            return answer
    if int(request.headers.get("Content-Length") or 0) > files.MAX_PIECE_BYTES:
        raise IngestRefused(f"A chunk may have at most {files.MAX_PIECE_BYTES} bytes. Send smaller ones.", status=413)
    piece = _piece(request.GET, request.body)
    try:
        if merge is None:
            have = await sync_to_async(files.receive)(
                run_id=attempt.run_id, attempt=attempt.number, name=name, piece=piece
            )
        else:
            have = await sync_to_async(receive_model)(merge, piece)
    except MergeOver:
        return not_taken(attempt)
    except files.FileGone as error:
        # Of this file alone: what else the attempt has to hand over is wanted.
        raise IngestRefused(f"{name} was deleted here while it arrived.", status=410) from error
    except files.OffsetWrong as error:
        return JsonResponse({"received": error.received, "is_ready": False, "problems": [str(error)]}, status=409)
    except files.ChecksumWrong as error:
        return JsonResponse({"received": 0, "is_ready": False, "problems": [str(error)]}, status=422)
    except files.DiskFull as error:
        return refusal(507, f"{error.strerror} What arrived so far is kept.")
    return JsonResponse({"received": have.received, "is_ready": have.is_ready})


async def _merge(request: HttpRequest, attempt: Attempt) -> Merge | None:
    """Return the merge under way whose job asks, None if it is none's."""
    shown = request.headers.get(MERGE_HEADER, "")
    return await sync_to_async(merge_of)(run_id=attempt.run_id, attempt=attempt.number, shown=shown)


@runner_view("POST")
async def merge_end(request: HttpRequest, attempt: Attempt) -> HttpResponseBase:
    """Keep the outcome of a job that made a model of a checkpoint: it is handed over, or why there is none."""
    merge = await _merge(request, attempt)
    if merge is None:
        return not_taken(attempt)
    problem = _object(request).get("problem", "")
    if not isinstance(problem, str):
        raise IngestRefused("problem: must be a text.")
    await sync_to_async(settle_merge)(merge, problem=_storable(problem), now=timezone.now())
    return JsonResponse({})


def _piece(query: QueryDict, data: bytes) -> files.FilePiece:
    """Return the piece, every field checked. Raises: IngestRefused."""
    size, offset = _number(query, "size", files.MAX_FILE_BYTES), _number(query, "offset", files.MAX_FILE_BYTES)
    step = _number(query, "step", 2**31 - 1, low=-1, default="-1")
    sha256 = query.get("sha256", "")
    if not _SHA256.fullmatch(sha256):
        raise IngestRefused(f"sha256: {sha256!r} is not 64 hexadecimal digits in lower case.")
    kind, path = query.get("type", ""), query.get("path", "")
    if not 1 <= len(kind) <= 20 or not 0 <= len(path) <= 500 or "\0" in kind + path:
        raise IngestRefused("type: must have 1 to 20 characters, and path at most 500.")
    if len(data) > files.MAX_PIECE_BYTES:
        raise IngestRefused(f"A chunk may have at most {files.MAX_PIECE_BYTES} bytes. Send smaller ones.", status=413)
    if offset + len(data) > size:
        raise IngestRefused(f"offset: {offset} and {len(data)} bytes go past the announced size of {size}.")
    if not data and offset < size:
        raise IngestRefused("The piece is empty. Send the bytes from offset on.")
    return files.FilePiece(
        offset=offset, size=size, sha256=sha256, type=kind, step=step, path=path, meta=_meta(query), data=data
    )


def _number(query: QueryDict, name: str, high: int, *, low: int = 0, default: str = "") -> int:
    text = query.get(name, default)
    if not re.fullmatch(r"-?[0-9]{1,18}", text) or not low <= int(text) <= high:
        raise IngestRefused(f"{name}: {text!r} is not a whole number from {low} to {high}.")
    return int(text)


def _meta(query: QueryDict) -> dict[str, object]:
    text = query.get("meta") or "{}"
    try:
        meta = json.loads(text, parse_constant=_refuse_constant)
        is_storable = "\\u0000" not in text and bool(json.dumps(meta, ensure_ascii=False, allow_nan=False).encode())
    except (ValueError, RecursionError):
        is_storable = False
    if not is_storable or not isinstance(meta, dict):
        raise IngestRefused("meta: must be a JSON object, without NaN, NUL, or halves of surrogate pairs.")
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


urlpatterns = [
    path("<slug:run>/<int:number>/launch", launch),
    path("<slug:run>/<int:number>/environment", environment),
    path("<slug:run>/<int:number>/events", events),
    path("<slug:run>/<int:number>/answers/<int:answer_id>", answer),
    path("<slug:run>/<int:number>/merge", merge_end),
    path("<slug:run>/<int:number>/inputs/<slug:sha256>", uploaded),
    path("<slug:run>/<int:number>/files/<path:name>/content", content),
    path("<slug:run>/<int:number>/files/<path:name>", file),
]
