"""No name leads out of its folder: uploads, the runners' files, downloads, zips, pages' own files."""

import io
import zipfile
from pathlib import Path
from typing import Any

import httpx
import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from console.command_line.api_client import ApiClient
from console.downloads.capture_zip import safe_names
from jobs.models import Artifact, Run, Upload
from jobs.runner.console_client.zip_image import zip_image
from tests.console.fake_runner import DATA, Runner, content
from tests.rows import make_artifact, make_project, make_run, make_user

pytestmark = pytest.mark.django_db

NAMES = [
    "../evil.jsonl",
    "../../../../tmp/evil.jsonl",
    "/tmp/evil.jsonl",
    "//tmp/evil.jsonl",
    "a/../../evil.jsonl",
    "..\\..\\evil.jsonl",
    "C:\\evil.jsonl",
    "evil\0.jsonl",
    "./.evil.jsonl",
    "~/evil.jsonl",
    "..%2f..%2fevil.jsonl",
    "..;/evil.jsonl",
    "．．/evil.jsonl",
    "e" * 300 + ".jsonl",
]


@pytest.fixture
def home(tmp_path: Path, settings: Any) -> Path:
    """Where the console keeps files, with room around it to see what falls out."""
    settings.FILES_DIR = tmp_path / "data" / "files"
    return tmp_path


@pytest.fixture
def run() -> Run:
    return make_run(make_project("team"), state="running")


def around(home: Path) -> set[str]:
    """Return every file that lies outside the folder for files."""
    inside = home / "data" / "files"
    return {str(p.relative_to(home)) for p in home.rglob("*") if p.is_file() and not p.is_relative_to(inside)}


@pytest.mark.parametrize("name", NAMES)
def test_an_upload_lies_under_its_hash_whatever_it_is_called(home: Path, run: Run, name: str) -> None:
    client = Client()
    client.force_login(make_user(project=run.project), backend="django.contrib.auth.backends.ModelBackend")
    file = SimpleUploadedFile("plain.jsonl", b'{"prompt": "1+1=", "answer": "2"}\n')
    file._name = name  # type: ignore[attr-defined]  # as a client may write it: the class cleans what it is given

    answer = client.post("/api/uploads", {"file": file})

    stored = {p.name for p in (home / "data").rglob("*") if p.is_file()} - {".lock"}
    assert answer.status_code in (201, 400, 422), answer.content
    assert around(home) == set()
    assert stored == set(Upload.objects.values_list("sha256", flat=True))
    assert all(
        "/" not in n and "\\" not in n and "\0" not in n for n in Upload.objects.values_list("file_name", flat=True)
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_runner_cannot_write_out_of_its_run(home: Path, run: Run, name: str) -> None:
    answer = Runner(run).put(name.replace("\0", "%00"), DATA)

    assert around(home) == set()
    assert answer.status_code in (301, 400, 404)
    assert not Artifact.objects.exists()


@pytest.mark.parametrize("path", [*NAMES, "/etc/passwd", "../../pitwall.sqlite3"])
def test_the_path_that_a_runner_tells_is_never_opened(home: Path, run: Run, path: str) -> None:
    runner = Runner(run)

    answer = runner.put("model/final", DATA, path=path.replace("\0", "")[:500])

    assert answer.status_code == 200
    row = Artifact.objects.get()
    assert row.stored_path.read_bytes() == DATA
    assert content(runner.get("files/model/final/content")) == DATA
    assert around(home) == set()


@pytest.mark.parametrize("name", [n for n in NAMES if "\0" not in n and len(n) < 256])
def test_a_download_is_saved_under_a_plain_name(home: Path, run: Run, name: str) -> None:
    artifact = make_artifact(run, name)  # as if the check of names had let it in
    path = artifact.stored_path
    path.parent.mkdir(parents=True)
    path.write_bytes(b"bin")
    client = Client()
    client.force_login(make_user(project=run.project), backend="django.contrib.auth.backends.ModelBackend")

    answer = client.get(f"/runs/{run.pk}/files/{artifact.pk}")

    saved = answer["Content-Disposition"]
    assert answer.status_code == 200
    assert saved.startswith("attachment")
    assert not any(bad in saved for bad in ("/", "\\", "..", ":", "%2f"))


def test_a_zip_of_a_capture_unpacks_into_its_own_folder() -> None:
    names = safe_names([*NAMES, "..", ".", "", "trace.json", "trace.json", "CON", "a/trace.json"])

    assert len(set(names)) == len(names)
    for name in names:
        assert name, names
        assert not set(name) & set("/\\:\0"), name
        assert name not in (".", ".."), name


@pytest.mark.parametrize("capture", ["../../evil", "/tmp/evil", "..", "a/b/c-12"])
def test_a_console_cannot_choose_where_a_capture_is_saved(tmp_path: Path, capture: str) -> None:
    folder = tmp_path / "a" / "b"
    (folder / "r-1").mkdir(parents=True)
    transport = httpx.MockTransport(lambda _request: httpx.Response(200, content=b"PK"))
    client = ApiClient("http://console", "pw_x", transport=transport)

    saved = client.save_capture("r-1", capture, folder)

    assert [p for p in tmp_path.rglob("*") if p.is_file()] == [saved]
    assert saved.parent == folder


@pytest.mark.parametrize("sha256", ["..", "%2e%2e", "..%2f..%2fsecret_key", "0" * 63, "0" * 64, "A" * 64])
def test_only_uploads_of_the_project_are_handed_to_a_runner(home: Path, run: Run, sha256: str) -> None:
    (home / "data").mkdir(parents=True, exist_ok=True)
    (home / "data" / "secret_key").write_text("secret")

    answer = Runner(run).get(f"inputs/{sha256}")

    assert answer.status_code == 404
    assert b"secret" not in answer.content.replace(sha256.encode(), b"")


def test_a_run_does_not_hand_over_what_its_folder_only_points_to(tmp_path: Path) -> None:
    model, outside = tmp_path / "model", tmp_path / "outside"
    model.mkdir()
    outside.mkdir()
    (outside / "secret").write_text("secret")
    (model / "weights").write_text("weights")
    (model / "same").symlink_to("weights")
    (model / "file").symlink_to(outside / "secret")
    (model / "folder").symlink_to(outside)
    (model / "up").symlink_to("..")

    image = zip_image(model)
    packed = zipfile.ZipFile(io.BytesIO(image.read(0, image.size)))

    assert packed.namelist() == ["same", "weights"]


@pytest.mark.parametrize(
    "path", ["../secret_key", "..%2fsecret_key", "%2e%2e/%2e%2e/etc/passwd", "/etc/passwd", "a%00b"]
)
def test_static_files_stay_in_their_folder(path: str) -> None:
    answer = Client().get(f"/static/{path}")

    assert answer.status_code in (302, 400, 404)
