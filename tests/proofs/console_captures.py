"""What the console makes of a capture: everything that a run's console was sent goes through a real one's ingest."""

import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, cast

from profiling.events import Event
from tests.proofs.shipped_run import ShippedRun


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureOutcome:
    """How a capture ended on the console: `ready` or `failed`, why, and what it was told of it."""

    state: str
    problem: str
    meta: Mapping[str, Any]


def set_up() -> None:
    """Make an empty console's database of this process's own."""
    os.environ["PITWALL_DATA_DIR"] = tempfile.mkdtemp(prefix="pw-captures-")
    os.environ["DJANGO_SETTINGS_MODULE"] = "console.settings"
    import django
    from django.core.management import call_command

    django.setup()
    call_command("migrate", verbosity=0)


def outcome_of(shipped: ShippedRun, capture: str, *, tool: str) -> CaptureOutcome:
    """Play a run to the console as its runner does, and return its verdict. Nothing is kept of it.

    Of a runner that was killed the attempt has ended before the clean-up job brings the rest.
    """
    from django.db import transaction

    from jobs.captures.artifacts import FilePiece, receive
    from jobs.ingest.store import AttemptCache, store
    from jobs.models import Capture
    from jobs.runs.lifecycle import finish
    from tests.batches import delivery
    from tests.rows import make_project, make_run

    now = datetime.now(UTC)
    with transaction.atomic():
        project = make_project(f"proof-{capture}")
        run = make_run(project, state="running", spec={"algorithm": "sft"}, now=now)
        row = Capture.objects.create(
            run=run, attempt=1, pk=capture, tool=tool, seconds=300, num_steps=1, state="armed", created_at=now
        )
        told = [event for event in shipped.events if event != shipped.terminal_event]  # files come before it
        before, rest = told[: shipped.num_before], told[shipped.num_before :]
        store([delivery(run.pk, 1, cast(list[Event], before))], memory=AttemptCache(), now=now)
        if rest:
            finish(run_id=run.pk, attempt=1, state="failed", cause={}, cleanup={}, now=now)
            store([delivery(run.pk, 2, cast(list[Event], rest))], memory=AttemptCache(), now=now)
        for name, data in shipped.files.items():
            about = shipped.about[name]
            meta = json.loads(about["meta"])
            if meta.get("capture") != capture:
                continue
            piece = FilePiece(
                offset=0,
                sha256=about["sha256"],
                type="trace",
                data=data,
                step=int(about["step"]),
                path=about["path"],
                size=int(about["size"]),
                meta=meta,
            )
            assert receive(run_id=run.pk, attempt=1, name=name, piece=piece).is_ready
        if not rest:
            finish(run_id=run.pk, attempt=1, state=shipped.terminal_event["state"], cause={}, cleanup={}, now=now)
        row.refresh_from_db()
        found = CaptureOutcome(state=row.state, problem=row.problem, meta=row.meta)
        transaction.set_rollback(True)
    return found
