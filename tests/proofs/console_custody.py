"""What the console makes of a capture: everything that a run told goes through its ingest, then it ends."""

import os
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tests.jobs.engine.conftest import Ended


@dataclass(frozen=True, slots=True, kw_only=True)
class Custody:
    """How a capture ended on the console: `ready` or `failed`, and why."""

    state: str
    problem: str


def set_up() -> None:
    """Make an empty console's database of this process's own."""
    os.environ["PITWALL_DATA_DIR"] = tempfile.mkdtemp(prefix="pw-custody-")
    os.environ["DJANGO_SETTINGS_MODULE"] = "console.settings"
    import django
    from django.core.management import call_command

    django.setup()
    call_command("migrate", verbosity=0)


def custody_of(ended: Ended, capture: str, *, tool: str) -> Custody:
    """Play a run to the console as its runner does, files first that are on the cluster, and return its verdict.

    Nothing is kept of it.
    """
    from django.db import transaction

    from jobs.files import Piece, receive
    from jobs.lifecycle import finish
    from jobs.models import Capture
    from jobs.storing import Memory, store
    from tests.batches import delivery
    from tests.rows import make_project, make_run

    now = datetime.now(UTC)
    with transaction.atomic():
        project = make_project(f"proof-{capture}")
        run = make_run(project, state="running", spec={"algorithm": "sft"}, now=now)
        row = Capture.objects.create(
            run=run, attempt=1, pk=capture, tool=tool, seconds=300, num_steps=1, state="armed", created_at=now
        )
        told = [{**event, "attempt": 1} for event in ended.events]
        store([delivery(run.pk, 1, told)], memory=Memory(), now=now)
        for event in ended.of("artifact"):
            if event["meta"].get("capture") != capture:
                continue
            data = (ended.run_dir / event["path"]).read_bytes()
            about = {key: event[key] for key in ("step", "path", "meta", "size")}
            piece = Piece(offset=0, sha256=event["meta"]["sha256"], type="trace", data=data, **about)
            assert receive(run_id=run.pk, attempt=1, name=event["name"], piece=piece).is_ready
        last = "finished" if ended.code == 0 else "stopped" if ended.code == 10 else "failed"
        finish(run_id=run.pk, attempt=1, state=last, cause={}, cleanup={}, now=now)
        row.refresh_from_db()
        found = Custody(state=row.state, problem=row.problem)
        transaction.set_rollback(True)
    return found


def announced(ended: Ended, capture: str) -> list[Path]:
    """Return the files of a capture that the run told of."""
    return [ended.run_dir / e["path"] for e in ended.of("artifact") if e["meta"].get("capture") == capture]
