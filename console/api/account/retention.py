"""How long a project keeps what its runs leave, and what its rules would let go."""

import dataclasses
from datetime import datetime
from typing import Literal

from django.conf import settings
from django.http import HttpRequest
from django.utils import timezone
from ninja import Field, Router, Schema

from console.api.problem import REFUSALS, RequestProblem
from console.api.visible import caller, project_for
from jobs.models import Project, Retention
from jobs.retention.apply import Going, preview
from jobs.retention.policy import RetentionRefused, parse_rules, rules_of, set_retention

router = Router(tags=["projects"])
MOST_LISTED = 5000
Kind = Literal["logs", "samples", "captures", "checkpoints"]


class RuleIO(Schema):
    """What goes is older than `days` (null: of any age) and not among what is kept: the newest `keep_last` (of runs for
    logs and samples, of the same run for captures and checkpoints), of checkpoints also the best `keep_best`.
    """

    model_config = {"extra": "forbid"}

    days: int | None = None
    keep_last: int | None = None
    keep_best: int | None = None


class RetentionIn(Schema):
    """The project's rules; a kind without one is kept for good. `trash_days` null: as the console says."""

    model_config = {"extra": "forbid"}

    rules: dict[Kind, RuleIO]
    trash_days: int | None = None


class RulesIn(Schema):
    """Rules to try, or null for those that the project has."""

    model_config = {"extra": "forbid"}

    rules: dict[Kind, RuleIO] | None = None


class RetentionOut(Schema):
    """The project's rules, for how many days its trash can be undone, and when they were applied last."""

    rules: dict[Kind, RuleIO]
    trash_days: int | None = Field(description="The project's own number")
    console_trash_days: int
    applied_at: datetime | None


class GoingOut(Schema):
    """What of a run would go: log lines, samples, files of a capture, or checkpoints."""

    kind: Literal["logs", "samples", "capture", "checkpoints"]
    run_id: str
    run_name: str
    num_things: int
    bytes_here: int
    bytes_cluster: int
    capture_id: str


class PreviewOut(Schema):
    """What would go now; `total` counts all of it, `going` lists the first 5,000."""

    going: list[GoingOut]
    total: int
    bytes_here: int
    bytes_cluster: int


@router.get("/{slug:project}/retention", response={200: RetentionOut, **REFUSALS}, summary="Retention")
def read_retention(request: HttpRequest, project: str) -> RetentionOut:
    """Return how long the project keeps logs, samples, captures and checkpoints of ended runs."""
    return _out(project_for(request, project))


@router.put("/{slug:project}/retention", response={200: RetentionOut, **REFUSALS}, summary="Set the retention")
def put_retention(request: HttpRequest, project: str, body: RetentionIn) -> RetentionOut:
    """Set all rules at once; they are applied within a day, through the trash. Admins only."""
    home = project_for(request, project, "admin")
    raw: dict[str, object] = {kind: rule.model_dump(exclude_none=True) for kind, rule in body.rules.items()}
    try:
        set_retention(project=home, raw=raw, trash_days=body.trash_days, user=caller(request), now=timezone.now())
    except RetentionRefused as error:
        raise RequestProblem(422, str(error), field=error.field) from error
    return _out(home)


@router.post(
    "/{slug:project}/retention/preview", response={200: PreviewOut, **REFUSALS}, summary="What retention would let go"
)
def preview_retention(request: HttpRequest, project: str, body: RulesIn) -> PreviewOut:
    """Say what these rules would put into the trash now, run by run; nothing changes. Admins only."""
    home = project_for(request, project, "admin")
    try:
        rules = (
            rules_of(home)
            if body.rules is None
            else parse_rules({kind: rule.model_dump(exclude_none=True) for kind, rule in body.rules.items()})
        )
    except RetentionRefused as error:
        raise RequestProblem(422, str(error), field=error.field) from error
    going = list(preview(home, rules, now=timezone.now()))
    return PreviewOut(
        going=[_going(each) for each in going[:MOST_LISTED]],
        total=len(going),
        bytes_here=sum(each.bytes_here for each in going),
        bytes_cluster=sum(each.bytes_cluster for each in going),
    )


def _out(project: Project) -> RetentionOut:
    row = Retention.objects.filter(project=project).first()
    return RetentionOut(
        rules={kind: RuleIO(**dataclasses.asdict(rule)) for kind, rule in rules_of(project).items()},
        trash_days=row.trash_days if row else None,
        console_trash_days=settings.TRASH_DAYS,
        applied_at=row.applied_at if row else None,
    )


def _going(each: Going) -> GoingOut:
    return GoingOut(
        kind=each.kind,
        run_id=each.run_id,
        run_name=each.run_name,
        num_things=each.num_things,
        bytes_here=each.bytes_here,
        bytes_cluster=each.bytes_cluster,
        capture_id=each.capture_id,
    )
