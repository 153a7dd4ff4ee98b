"""A fake runner that calls the ingest endpoints, for the tests of batches and of files."""

import hashlib
import json
from typing import Any

from asgiref.sync import async_to_sync
from django.test import Client

from jobs.models import Run
from jobs.runs.launch import ingest_token

DATA = bytes(range(256)) * 64  # 16 KiB
SHA256 = hashlib.sha256(DATA).hexdigest()


class Runner:
    """Calls the ingest endpoints as a runner does."""

    def __init__(self, run: Run, attempt: int = 1, token: str | None = None, merge: str = "") -> None:
        token = token if token is not None else ingest_token(run.pk, attempt)
        headers = {"Authorization": f"Bearer {token}"} | ({"X-Pitwall-Merge": merge} if merge else {})
        self.client = Client(headers=headers, enforce_csrf_checks=True)
        self.base = f"/ingest/{run.pk}/{attempt}"

    def get(self, path: str) -> Any:
        return self.client.get(f"{self.base}/{path}")

    def post(self, path: str, body: Any) -> Any:
        raw = body if isinstance(body, bytes) else json.dumps(body)
        return self.client.post(f"{self.base}/{path}", raw, content_type="application/json")

    def events(self, batch: int, *batch_events: Any, **more: Any) -> Any:
        return self.post("events", {"batch": batch, "events": batch_events, **more})

    def put(self, name: str, data: bytes, *, offset: int = 0, **about: Any) -> Any:
        query = {"offset": offset, "size": len(DATA), "sha256": SHA256, "type": "model", "path": "model/final", **about}
        path = f"{self.base}/files/{name}"
        return self.client.put(path, data, content_type="application/octet-stream", query_params=query)


def content(answer: Any) -> bytes:
    """Return the body of a streamed answer."""

    async def collect() -> bytes:
        return b"".join([part async for part in answer.streaming_content])

    return async_to_sync(collect)()
