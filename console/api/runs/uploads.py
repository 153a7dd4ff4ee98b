"""Data files given to the console."""

from datetime import datetime

from django.http import HttpRequest
from django.utils import timezone
from ninja import File, Router, Schema, Status
from ninja.files import UploadedFile

from console.api.problem import REFUSALS, ProblemsOut, RequestProblem
from console.api.visible import ProjectSlug, caller, project_for
from jobs.models import Upload
from jobs.preflight.data_files import NoRoomForUpload, UploadRefused, store_upload

router = Router(tags=["uploads"])

_SHOWN = 200


class UploadOut(Schema):
    """An uploaded file; `id` is what `data.id` of a spec takes."""

    id: str
    file_name: str
    size: int
    sha256: str
    created_at: datetime


class UploadsOut(Schema):
    """The project's uploads, newest first."""

    uploads: list[UploadOut]


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
    rows = Upload.objects.filter(project=home).order_by("-created_at", "-pk")[:_SHOWN]
    return UploadsOut(uploads=[_upload(row) for row in rows])


def _upload(row: Upload) -> UploadOut:
    return UploadOut(
        id=f"upload:{row.sha256}",
        file_name=row.file_name,
        size=row.size,
        sha256=row.sha256,
        created_at=row.created_at,
    )
