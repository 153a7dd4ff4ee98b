"""The ingest endpoints, `/ingest/<run>/<attempt>/...`: launch, events, answers (docs/develop/protocol.md, 3)."""

import asyncio
import json
from datetime import timedelta
from typing import Any
from weakref import WeakKeyDictionary

import redis.asyncio
from asgiref.sync import sync_to_async
from django.db import transaction
from django.http import HttpRequest, JsonResponse
from django.http.response import HttpResponseBase
from django.urls import path
from django.utils import timezone

from console.api.ingest import files
from console.api.ingest.access import RequestRefused, fenced, refusal, runner_view
from jobs.captures import state as captures
from jobs.ingest.batches import MAX_BODY_BYTES, AnsweredCommand, Batch, BatchInvalid, parse_batch
from jobs.ingest.inbox import accept
from jobs.models import Attempt, Command, Upload
from jobs.runs.prompt_model import settle
from jobs.telemetry.attempt_spec import spec_json
from jobs.telemetry.streams import async_client

TOUCH_EVERY = timedelta(seconds=1)

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
            "commands": await sync_to_async(_waiting_commands)(attempt),
        }
    )


def _resume(attempt: Attempt) -> dict[str, int] | None:
    """Return whose checkpoint the attempt starts from; None: from the start."""
    return {"attempt": attempt.resume_attempt, "step": attempt.resume_step} if attempt.resume_attempt else None


def _inputs(attempt: Attempt) -> list[dict[str, Any]]:
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


def _note_contact(attempt: Attempt, batch: Batch) -> list[dict[str, Any]]:
    """Note that the runner was heard and what it answered; return the commands it has not answered yet."""
    now = timezone.now()
    if attempt.last_contact_at is None or now - attempt.last_contact_at >= TOUCH_EVERY:
        Attempt.objects.filter(pk=attempt.pk).update(last_contact_at=now)
    for answered in batch.answered:
        _settle_command(attempt, answered)
    return _waiting_commands(attempt)


def _waiting_commands(attempt: Attempt) -> list[dict[str, Any]]:
    waiting = Command.objects.filter(attempt=attempt, delivered_at=None).order_by("pk")
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
    try:
        body = json.loads(request.body)
    except (ValueError, RecursionError) as error:
        raise RequestRefused(f"The body is not JSON: {error}.") from error
    if not isinstance(body, dict):
        raise RequestRefused("The body must be a JSON object with text, token_ids and problem.")
    text, token_ids, problem = (body.get(k, d) for k, d in (("text", ""), ("token_ids", []), ("problem", "")))
    if not isinstance(text, str) or not isinstance(problem, str):
        raise RequestRefused("text, problem: must be texts.")
    if not isinstance(token_ids, list) or not all(type(t) is int for t in token_ids):
        raise RequestRefused("token_ids: must be a list of whole numbers.")
    await sync_to_async(settle)(
        answer_id=answer_id,
        run_id=attempt.run_id,
        text=_storable(text),
        token_ids=token_ids,
        problem=_storable(problem),
        now=timezone.now(),
    )
    return JsonResponse({})


def _storable(text: str) -> str:
    """Return the text without what no database takes: NUL, and halves of surrogate pairs."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


urlpatterns = [
    path("<slug:run>/<int:number>/launch", launch),
    path("<slug:run>/<int:number>/events", events),
    path("<slug:run>/<int:number>/answers/<int:answer_id>", answer),
    path("<slug:run>/<int:number>/inputs/<slug:sha256>", files.uploaded),
    path("<slug:run>/<int:number>/files/<path:name>/content", files.content),
    path("<slug:run>/<int:number>/files/<path:name>", files.file),
]
