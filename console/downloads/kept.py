"""Files that people take along, in the audit: which, of what, and who."""

from collections.abc import Sequence

from django.contrib.auth.models import AbstractBaseUser
from django.http import HttpRequest

from jobs.accounts.audit import record
from jobs.models import Project, Run


def keep_download(
    request: HttpRequest,
    object_type: str,
    object_id: str,
    file: str,
    *,
    project: Project | None = None,
    runs: Sequence[str] = (),
) -> None:
    """Keep that a file was taken along; what is asked of it with HEAD, or from its middle on, is no new download."""
    if request.method == "HEAD":
        return
    actor = request.user if isinstance(request.user, AbstractBaseUser) else None
    after = {"file": file, "runs": list(runs)} if runs else {"file": file}
    record(
        actor=actor,
        verb="file.download",
        object_type=object_type,
        object_id=object_id,
        after=after,
        project=project,
    )


def keep_comparison(request: HttpRequest, runs: Sequence[Run], file: str) -> None:
    """Keep that a file of several runs was taken along: one row for each project that they are of."""
    for project in {run.project_id: run.project for run in runs}.values():
        own = [run.pk for run in runs if run.project_id == project.pk]
        keep_download(request, "project", project.slug, file, runs=own)
