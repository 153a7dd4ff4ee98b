"""Data files given to the console."""

from datetime import datetime

from django.http import HttpRequest
from django.utils import timezone
from ninja import File, Router, Schema, Status
from ninja.files import UploadedFile

from console.api.problem import REFUSALS, ProblemsOut, RequestProblem
from console.api.visible import ProjectSlug, caller, project_for
from jobs.models import Upload
from jobs.preflight.data_files import (
    KeptUpload,
    NoRoomForUpload,
    UploadInUse,
    UploadRefused,
    delete_upload,
    kept_uploads,
    store_upload,
)

router = Router(tags=["uploads"])

_SHOWN = 200


class UploadOut(Schema):
    """An uploaded file; `id` is what `data.id` of a spec takes."""

    id: str
    file_name: str
    size: int
    sha256: str
    created_at: datetime


class UploadRunOut(Schema):
    """A run whose data are an uploaded file."""

    id: str
    name: str
    state: str


class KeptUploadOut(UploadOut):
    """An uploaded file, who brought it, and the runs that use it, the newest first."""

    created_by: str | None
    runs: list[UploadRunOut]


class UploadsOut(Schema):
    """The project's uploads, newest first, and what all of them take in bytes."""

    uploads: list[KeptUploadOut]
    total_size: int


@router.post("", response={201: UploadOut, 507: ProblemsOut, **REFUSALS}, summary="Upload a JSONL or Parquet file")
def upload_file(request: HttpRequest, file: File[UploadedFile], project: ProjectSlug = None) -> Status[UploadOut]:
    """Store a file for use as training data; the same content twice is the same upload."""
    home = project_for(request, project, "editor")
    try:
        row = store_upload(
            project=home,
            file_name=file.name or "",
            chunks=file.chunks(),
            user=caller(request),
            now=timezone.now(),
            size=file.size or 0,
        )
    except NoRoomForUpload as error:
        raise RequestProblem(507, str(error), field="file") from error
    except UploadRefused as error:
        raise RequestProblem(422, str(error), field="file") from error
    return Status(201, _upload(row))


@router.get("", response={200: UploadsOut, **REFUSALS}, summary="Uploaded files")
def list_uploads(request: HttpRequest, project: ProjectSlug = None) -> UploadsOut:
    """Return the newest 200 files of the project."""
    home = project_for(request, project)
    files = kept_uploads(home)
    return UploadsOut(uploads=[_kept(one) for one in files[:_SHOWN]], total_size=sum(one.row.size for one in files))


@router.delete("/{sha256}", response={204: None, **REFUSALS}, summary="Delete an uploaded file")
def delete_file(request: HttpRequest, sha256: str, project: ProjectSlug = None, force: bool = False) -> Status[None]:
    """Delete a file of the project; its bytes go unless another project has the same.

    Refused (409) while runs that have not ended use it; with `force` those that still wait fail.
    """
    home = project_for(request, project, "editor")
    row = Upload.objects.filter(project=home, sha256=sha256.removeprefix("upload:")).first()
    if row is None:
        raise RequestProblem(404, f"No file {sha256[:80]!r} was uploaded to this project.", field="sha256")
    try:
        delete_upload(upload=row, user=caller(request), is_forced=force)
    except UploadInUse as error:
        raise RequestProblem(409, str(error), field="sha256") from error
    return Status(204, None)


def _kept(one: KeptUpload) -> KeptUploadOut:
    return KeptUploadOut(
        **_upload(one.row).dict(),
        created_by=one.row.created_by.get_username() if one.row.created_by else None,
        runs=[UploadRunOut(id=run.id, name=run.name, state=run.state) for run in one.runs],
    )


def _upload(row: Upload) -> UploadOut:
    return UploadOut(
        id=f"upload:{row.sha256}",
        file_name=row.file_name,
        size=row.size,
        sha256=row.sha256,
        created_at=row.created_at,
    )
