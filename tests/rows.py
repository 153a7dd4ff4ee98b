"""Rows that tests start from, made through the same functions as the product's where there is one."""

import itertools
from datetime import UTC, datetime
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import AbstractUser
from django.test import Client

from jobs.models import Artifact, Attempt, Membership, Merge, Project, Run
from jobs.runs.launch import create_run
from jobs.runs.merges import request_merge

NOW = datetime(2026, 11, 20, 12, 0, 0, tzinfo=UTC)
_numbers = itertools.count(1)


def make_user(name: str = "", *, project: Project | None = None, role: str = "editor") -> AbstractUser:
    """Return a new account, a member of `project` if one is given."""
    user: AbstractUser = get_user_model().objects.create_user(username=name or f"person-{next(_numbers)}")
    if project is not None:
        Membership.objects.create(project=project, user=user, role=role)
    return user


def signed_in(user: AbstractUser) -> Client:
    """Return a client of the console as which this person is signed in."""
    client = Client(headers={"Host": "localhost"})
    client.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
    return client


def make_project(slug: str = "") -> Project:
    """Return a new project."""
    slug = slug or f"project-{next(_numbers)}"
    return Project.objects.create(slug=slug, name=slug.title())


def make_run(
    project: Project | None = None,
    *,
    state: str = "queued",
    spec: dict[str, Any] | None = None,
    user: AbstractUser | None = None,
    now: datetime = NOW,
    **fields: Any,
) -> Run:
    """Return a run queued through `create_run`, its rows then set to `state` as it stands, without its history."""
    run, _ = create_run(project=project or make_project(), spec=spec or {}, user=user, idempotency_key=None, now=now)
    attempt = Attempt.objects.get(run=run)
    times: dict[str, Any] = {} if state == "queued" else {"submitted_at": now}
    if state in ("running", "stopping", "finished", "failed", "stopped"):
        times |= {"started_at": now, "last_contact_at": now}
    if state in ("finished", "failed", "stopped"):
        times |= {"ended_at": now, "cleanup": {"processes_left": 0}}
    Attempt.objects.filter(pk=attempt.pk).update(state=state, **times)
    mirrored = {k: v for k, v in times.items() if k in ("started_at", "ended_at")}
    Run.objects.filter(pk=run.pk).update(state=state, **mirrored, **fields)
    run.refresh_from_db()
    return run


def make_artifact(run: Run, name: str = "model/final", **fields: Any) -> Artifact:
    """Return an artifact of the run, ready unless `is_ready` says otherwise."""
    values = {"type": "model", "path": name, "size": 3, "received": 3, "is_ready": True, **fields}
    return Artifact.objects.create(run=run, attempt=run.latest_attempt, name=name, **values)


def make_merge(run: Run, *, step: int = 3, **fields: Any) -> Merge:
    """Return a model that is asked for of the run's checkpoint of a step, which is made too, through `request_merge`;
    its row then set to these fields."""
    name = f"checkpoint-{step}"
    if not run.artifacts.filter(name=name).exists():
        make_artifact(run, name, type="checkpoint", path=f"checkpoints/step-{step}", step=step, is_ready=False)
    merge = request_merge(run_id=run.pk, attempt=run.latest_attempt, step=step, user=None, now=NOW)
    Merge.objects.filter(pk=merge.pk).update(**fields)
    merge.refresh_from_db()
    return merge
