"""Shapes of runs on the API; the header itself is the dataclass that pages and the websocket use."""

from datetime import datetime
from typing import Literal

from ninja import Field, Schema
from pydantic import JsonValue

from jobs.catalog.value import Value
from jobs.retention.deletion import Deletion
from jobs.runs.queries import RunHeader


class RunRowOut(Schema):
    """A line of a list of runs, with the knobs asked for."""

    run: RunHeader
    knobs: dict[str, Value]


class RunsOut(Schema):
    """One page of runs; `states` and `tags` count over the project.

    Where not `is_counted`, more than `total` runs pass the filter, and there are further pages.
    """

    runs: list[RunRowOut]
    total: int
    is_counted: bool
    page: int
    num_pages: int
    page_size: int
    states: dict[str, int]
    tags: dict[str, int]


class LaunchedOut(Schema):
    """The run a POST made, or made before with the same Idempotency-Key."""

    run: RunHeader
    url: str = Field(description="The run's page")
    note: str = Field("", description="What is worth knowing of the launch, as that nothing of it was said")


class RunPatchIn(Schema):
    """What may be changed of a run; leave out what stays."""

    model_config = {"extra": "forbid"}

    name: str | None = Field(None, description="1 to 120 characters on one line")
    tags: list[str] | None = Field(None, description="Up to 20, without spaces or commas")
    note: str | None = None
    is_archived: bool | None = None


class DoneOut(Schema):
    """What a request to stop or to save changed; False where it was so before."""

    is_changed: bool
    run: RunHeader


class StoppedOut(DoneOut):
    """What a request to stop changed; until `undo_until` it can be taken back, null where it cannot."""

    undo_until: datetime | None


class DeletionOut(Schema):
    """What became of one run: trashed, stopping (it goes when it has ended), or refused and why.

    Bytes: those of the console, and of checkpoints on the cluster.
    """

    id: str
    name: str
    bytes_here: int
    bytes_cluster: int
    outcome: Literal["trashed", "stopping", "refused"]
    message: str
    purge_at: datetime | None = Field(description="Until then it can be taken back")


class DeletionsOut(Schema):
    """What became of each run that was named, in their order."""

    runs: list[DeletionOut]


def deletion_out(done: Deletion) -> DeletionOut:
    """Return it as the API says it."""
    return DeletionOut(
        id=done.id,
        name=done.name,
        bytes_here=done.size.here,
        bytes_cluster=done.size.cluster,
        outcome=done.outcome,
        message=done.message,
        purge_at=done.purge_at,
    )


class EventOut(Schema):
    """A line of the run's history."""

    id: int
    at: datetime
    attempt: int
    verb: str
    text: str
    step: int | None
    actor: str
    data: dict[str, JsonValue]


class EventsOut(Schema):
    """One page of history, newest first."""

    events: list[EventOut]
    total: int
    page: int


class ArtifactOut(Schema):
    """A file that the run left; `download_url` is there once all bytes are.

    `problem` says why a checkpoint is believed lost, in the words of the attempt that could not start from it.
    """

    id: int
    name: str
    type: str
    attempt: int
    step: int
    size: int
    received: int
    sha256: str
    is_ready: bool
    problem: str
    meta: dict[str, JsonValue]
    created_at: datetime
    download_url: str | None


class ArtifactsOut(Schema):
    """What the run left."""

    artifacts: list[ArtifactOut]


class TrainerCommandOut(Schema):
    """What a trainer is started with; `problem` says why there is no command."""

    argv: list[str]
    shell: str
    problem: str
