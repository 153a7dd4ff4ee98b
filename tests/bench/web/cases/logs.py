"""Logs of a gigabyte: the newest lines, and what a regular expression finds in all of them."""

import random
import time
from collections.abc import Iterator, Mapping
from typing import Any

from tests.bench.web.case import Reading, Window

BYTES = 1 << 30
LANES = 64  # of one policy; of each, ingest keeps 200,000 lines
LINES = 24  # of a lane in a batch
AT_ONCE = 50  # batches in one transaction
TAIL_MS = 500.0
EXPRESSION_MS = 2000.0
EXPRESSIONS = (
    ("in no line", r"CUDA error: .* at \w+\.cu:\d+"),
    ("in the oldest line", r"^rank \d+ joins the group of \d+$"),
    ("in every tenth line", r"loss=\d\.\d+ grad"),
)
_NEEDLE = "rank 0 joins the group of 64"


def seed(project: Any, user: Any) -> Mapping[str, Any]:
    """Write a gigabyte of lines through ingest, as 64 ranks that talk much write them."""
    from django.utils import timezone

    from jobs.ingest.store import AttemptCache, store
    from jobs.models import Attempt, Frame, Run
    from jobs.telemetry.log_index import index_log
    from profiling import events
    from tests.batches import delivery

    run = Run.objects.create(
        project=project, name="a gigabyte of logs", spec={}, state="running", created_by=user, latest_attempt=1
    )
    Attempt.objects.create(run=run, state="running", submission_id=f"bench-{run.pk}")
    memory, lines = AttemptCache(), _lines()
    written = batch = 0
    while written < BYTES:
        deliveries = []
        for _ in range(AT_ONCE):
            batch += 1
            told = []
            for rank in range(LANES):
                texts = [next(lines) for _ in range(LINES)]
                if batch == 1 and rank == 0:
                    texts[0] = _NEEDLE
                written += sum(map(len, texts))
                told.append(events.log(texts, attempt=1, role="policy", rank=rank, stream="stderr"))
            deliveries.append(delivery(run.pk, batch, told))
        store(deliveries, memory=memory, now=timezone.now())
        Frame.objects.filter(run=run).delete()  # as compaction does
        index_log(run.pk)
    return {"run": run.pk, "bytes": written}


def look(window: Window, seeded: Mapping[str, Any], rounds: int) -> list[Reading]:
    """Ask the API, which is what the page waits for."""
    context = window.context()
    address = f"{window.url}/api/runs/{seeded['run']}/logs"

    def asked(**params: str) -> float:
        began = time.perf_counter()
        answer = context.request.get(address, params=params, timeout=120_000)
        assert answer.ok, answer.text()
        answer.json()
        return (time.perf_counter() - began) * 1000

    took = [("newest 2,000 lines", TAIL_MS, {"limit": "2000"})]
    took += [
        (f"regular expression {where}", EXPRESSION_MS, {"q": text, "is_expression": "true", "limit": "2000"})
        for where, text in EXPRESSIONS
    ]
    readings = [
        Reading(
            what=f"log of 1 GB, {what}",
            values=tuple(asked(**params) for _ in range(rounds)),
            unit="ms",
            target=target,
        )
        for what, target, params in took
    ]
    context.close()
    return readings


def _lines() -> Iterator[str]:
    """Yield what trainers write: steps, requests of an engine, warnings, now and then a line of a traceback."""
    chance = random.Random(0)
    step = 0
    while True:
        step += 1
        clock = f"2026-11-27 {step // 36000 % 24:02}:{step // 600 % 60:02}:{step // 10 % 60:02},{step % 1000:03}"
        for k in range(8):
            requests = f"Running: {chance.randrange(256)} reqs, Waiting: {chance.randrange(64)} reqs"
            cache = f"GPU KV cache usage: {chance.random():.1%}, request {chance.getrandbits(64):x}"
            yield f"{clock} INFO engine.py:{400 + k}] {requests}, {cache}"
        values = f"loss={chance.random():.5f} grad_norm={chance.random():.3f} lr=1e-06"
        yield f"{clock} INFO trainer.py:88] step={step} {values}"
        batch = f"batch {step} of shard {chance.randrange(512)}"
        yield f"{clock} WARNING loader.py:42] took {chance.randrange(900)} ms for {batch}"
