"""The API besides runs: sign-in, specs, uploads, tokens, cluster, members, and its own reference page."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse

from console.sign_in.api_token import make_token
from jobs.models import ApiToken, AuditEvent, Project, Upload
from tests.rows import make_project, make_run, make_user

pytestmark = pytest.mark.django_db


@pytest.fixture
def project() -> Project:
    return make_project("pit")


def client_of(project: Project | None, role: str = "editor", name: str = "") -> Client:
    user = make_user(name, project=project, role=role)
    _row, token = make_token(user=user, name="test")
    return Client(headers={"Host": "localhost", "Authorization": f"Bearer {token}"})


@pytest.fixture
def api(project: Project) -> Client:
    return client_of(project, name="ada")


def post(client: Client, path: str, body: Any = None) -> Any:
    return client.post(path, json.dumps(body), content_type="application/json")


def test_without_a_token_or_session_everything_is_401_with_what_to_do() -> None:
    answer = Client(headers={"Host": "localhost"}).get("/api/account")

    assert answer.status_code == 401
    assert answer["WWW-Authenticate"].startswith("Bearer")
    assert "Authorization: Bearer" in answer.json()["problems"][0]["message"]


def test_a_wrong_or_revoked_token_is_401(api: Client) -> None:
    wrong = Client(headers={"Host": "localhost", "Authorization": "Bearer pw_wrong"})
    assert wrong.get("/api/account").status_code == 401
    token_id = api.get("/api/tokens").json()["tokens"][0]["id"]

    assert api.delete(f"/api/tokens/{token_id}").status_code == 204

    assert api.get("/api/account").status_code == 401


def test_a_token_of_an_inactive_account_is_401(api: Client) -> None:
    ApiToken.objects.get().user.__class__.objects.filter(username="ada").update(is_active=False)

    assert api.get("/api/account").status_code == 401


def test_a_session_reads_but_writes_only_with_its_csrf_token(project: Project) -> None:
    browser = Client(enforce_csrf_checks=True, headers={"Host": "localhost"})
    browser.force_login(make_user(project=project), backend="django.contrib.auth.backends.ModelBackend")
    run = make_run(project, state="running")

    assert browser.get("/api/account").json()["is_token"] is False
    assert post(browser, f"/api/runs/{run.pk}/stop").status_code == 403

    browser.cookies["csrftoken"] = "a" * 32
    answer = browser.post(f"/api/runs/{run.pk}/stop", headers={"X-CSRFToken": "a" * 32})
    assert answer.status_code == 200


def test_a_new_token_is_shown_once(api: Client) -> None:
    made = post(api, "/api/tokens", {"name": "laptop"})

    token = made.json()["token"]
    assert made.status_code == 201
    assert (
        Client(headers={"Host": "localhost", "Authorization": f"Bearer {token}"}).get("/api/account").status_code == 200
    )
    assert "token" not in api.get("/api/tokens").json()["tokens"][0]
    assert not ApiToken.objects.filter(sha256=token).exists()


def test_a_token_of_somebody_else_is_not_revoked(api: Client) -> None:
    row, _token = make_token(user=make_user("eve"), name="hers")

    assert api.delete(f"/api/tokens/{row.pk}").status_code == 404

    row.refresh_from_db()
    assert row.revoked_at is None


def test_a_token_needs_a_name(api: Client) -> None:
    for body in ({"name": ""}, {"name": "  "}, {}, {"name": "a\x00b"}):
        answer = post(api, "/api/tokens", body)
        assert answer.status_code == 422
        assert answer.json()["problems"][0]["field"] == "name"


def upload(client: Client, name: str, content: bytes) -> Any:
    return client.post("/api/uploads", {"file": SimpleUploadedFile(name, content)})


def test_an_upload_is_kept_under_its_hash_once(api: Client, settings: Any, tmp_path: Path) -> None:
    settings.FILES_DIR = tmp_path
    content = b'{"prompt": "1+1?", "answer": "2"}\n'

    first, second = upload(api, "rows.jsonl", content), upload(api, "again.jsonl", content)

    digest = hashlib.sha256(content).hexdigest()
    assert (first.status_code, first.json()["id"]) == (201, f"upload:{digest}")
    assert second.json()["id"] == first.json()["id"]
    assert (tmp_path / "uploads" / digest).read_bytes() == content
    assert Upload.objects.get().file_name == "rows.jsonl"
    assert [u["id"] for u in api.get("/api/uploads").json()["uploads"]] == [f"upload:{digest}"]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("rows.xlsx", b"a,b", "no JSONL, JSON, CSV or Parquet"),
        ("rows.jsonl", b"", "is empty"),
        ("rows.parquet", b"PAR1 cut off", "not a Parquet file, or it was cut off"),
        ("rows.jsonl", b"PAR1....PAR1", "Rename it to end in .parquet"),
        ("rows.jsonl", b"x" * 101, "is larger than"),
    ],
)
def test_an_upload_that_cannot_be_used_leaves_nothing(
    api: Client, settings: Any, tmp_path: Path, name: str, content: bytes, words: str
) -> None:
    settings.FILES_DIR, settings.MAX_UPLOAD_BYTES = tmp_path, 100

    answer = upload(api, name, content)

    assert answer.status_code == 422
    assert answer.json()["problems"][0]["field"] == "file"
    assert words in answer.json()["problems"][0]["message"]
    assert not Upload.objects.exists()
    assert not [p for p in tmp_path.rglob("*") if p.is_file()]


def test_an_upload_is_listed_with_its_runs_and_deleted_once_none_of_them_waits(
    api: Client, settings: Any, tmp_path: Path
) -> None:
    settings.FILES_DIR = tmp_path
    upload(api, "rows.jsonl", b"{}\n")
    row = Upload.objects.get()
    run = make_run(row.project, spec={"data": {"kind": "upload", "id": f"upload:{row.sha256}"}})

    listed = api.get("/api/uploads").json()
    assert listed["total_size"] == 3
    assert listed["uploads"][0]["created_by"] == "ada"
    assert listed["uploads"][0]["runs"] == [{"id": run.pk, "name": run.name, "state": "queued"}]
    refused = api.delete(f"/api/uploads/{row.sha256}")
    assert (refused.status_code, run.pk in refused.json()["problems"][0]["message"]) == (409, True)
    assert api.delete(f"/api/uploads/{row.sha256}?force=true").status_code == 204
    assert api.delete(f"/api/uploads/{row.sha256}").status_code == 404
    assert AuditEvent.objects.filter(verb="upload.delete", object_id=row.sha256).count() == 1


def test_an_upload_over_the_project_s_quota_is_refused_with_a_sentence(
    api: Client, settings: Any, tmp_path: Path
) -> None:
    settings.FILES_DIR, settings.MAX_PROJECT_UPLOAD_BYTES = tmp_path, 5
    assert upload(api, "rows.jsonl", b"{}\n").status_code == 201

    refused = upload(api, "more.jsonl", b"{} \n")

    assert refused.status_code == 422
    assert "Data files, size of" in refused.json()["problems"][0]["message"]
    assert Upload.objects.count() == 1
    assert len([p for p in (tmp_path / "uploads").iterdir() if len(p.name) == 64]) == 1


def test_a_full_disk_is_said_and_leaves_nothing(
    api: Client, settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.FILES_DIR = tmp_path
    monkeypatch.setattr("jobs.preflight.data_files.os.fsync", _full)

    answer = upload(api, "rows.jsonl", b"{}\n")

    assert answer.status_code == 507
    assert "No space left on device" in answer.json()["problems"][0]["message"]
    assert not [p for p in tmp_path.rglob("*") if p.is_file()]


def _full(_descriptor: int) -> None:
    raise OSError(28, "No space left on device")


def test_a_name_with_a_path_is_only_a_name(api: Client, settings: Any, tmp_path: Path) -> None:
    settings.FILES_DIR = tmp_path

    upload(api, "..\\..\\evil.jsonl", b"{}\n")

    assert Upload.objects.get().file_name == "evil.jsonl"


def test_checking_a_spec_says_everything_and_queues_nothing(api: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = post(api, "/api/specs/check", {"algorithm": "ppo", "trainer": {"name": "trl"}, "modle": {}}).json()
    monkeypatch.setattr("console.api.runs.specs.run_checks", lambda *_args, **_kwargs: [])
    right = post(api, "/api/specs/check", {"knobs": {"train.num_steps": 3}}).json()

    assert (wrong["is_launchable"], {p["field"] for p in wrong["problems"]}) == (False, {"algorithm", "modle"})
    assert right["is_launchable"]
    assert right["spec"]["knobs"]["train.num_steps"] == {"value": 3, "origin": "you"}


def test_the_spec_schema_lists_every_knob_with_its_range(api: Client) -> None:
    schema = api.get("/api/specs/schema").json()

    rate = schema["properties"]["knobs"]["properties"]["optimizer.learning_rate"]
    assert rate["anyOf"][0]["type"] == "number"
    assert "minimum" in rate["anyOf"][0]
    assert {"grpo", "sft", "ppo"} <= set(schema["properties"]["algorithm"]["enum"])
    assert {"type": "null"} in schema["properties"]["knobs"]["properties"]["eval.max_samples"]["anyOf"][0]["anyOf"]


def test_knobs_and_metrics_describe_themselves(api: Client) -> None:
    sft = {k["id"] for k in api.get("/api/catalog/knobs?algorithm=sft").json()["knobs"]}
    metrics = {m["name"]: m for m in api.get("/api/catalog/metrics").json()["metrics"]}

    assert "train.batch_size" in sft
    assert "algorithm.kl_coefficient" not in sft
    assert metrics["reward/mean"]["better"] == "higher"
    assert api.get("/api/catalog/knobs?algorithm=ppa").status_code == 422


def test_the_cluster_names_no_run_of_other_projects(api: Client, project: Project) -> None:
    mine, theirs = make_run(project, state="running"), make_run(make_project("other"), state="running")
    make_run(make_project("third"))

    page = api.get("/api/cluster").json()

    assert [h["header"] and h["header"]["id"] for h in page["holders"]] == [mine.pk, None]
    assert [q["header"] for q in page["queue"]] == [None]
    assert theirs.pk not in json.dumps(page)
    assert page["state"]["is_reachable"] is False
    assert page["state"]["cpus_used"] > 0


def test_admins_manage_members_and_one_admin_stays(project: Project, api: Client) -> None:
    admin = client_of(project, "admin", name="boss")
    make_user("eve")
    path = "/api/projects/pit/members"

    def put(client: Client, name: str, role: str) -> Any:
        return client.put(f"{path}/{name}", json.dumps({"role": role}), content_type="application/json")

    assert put(api, "eve", "viewer").status_code == 403
    assert put(admin, "eve", "viewer").json() == {"username": "eve", "role": "viewer"}
    assert put(admin, "nobody", "viewer").status_code == 404
    assert put(admin, "eve", "owner").status_code == 422
    assert put(admin, "boss", "viewer").status_code == 422
    assert admin.delete(f"{path}/boss").status_code == 409
    assert admin.delete(f"{path}/eve").status_code == 204
    assert {m["username"] for m in api.get(path).json()["members"]} == {"ada", "boss"}
    assert api.get("/api/projects").json()["projects"] == [{"slug": "pit", "name": "Pit", "role": "editor"}]


def test_without_a_project_the_api_says_whom_to_ask() -> None:
    answer = client_of(None).get("/api/runs")

    assert answer.status_code == 404
    assert "Ask an admin" in answer.json()["problems"][0]["message"]


def test_the_reference_page_shows_every_operation_without_foreign_assets(project: Project) -> None:
    browser = Client(headers={"Host": "localhost"})
    assert browser.get("/api/docs").status_code == 302
    browser.force_login(make_user(project=project), backend="django.contrib.auth.backends.ModelBackend")

    page = browser.get("/api/docs")

    text = page.content.decode()
    assert page.status_code == 200
    assert "/api/runs/{run_id}/stop" in text
    assert "Idempotency-Key" in text
    assert "script-src 'self'" in page["Content-Security-Policy"]
    for tag in ("src=", "<link"):
        assert "://" not in "".join(part.partition(">")[0] for part in text.split(tag)[1:])


def test_the_schema_is_for_people_who_are_signed_in(api: Client) -> None:
    assert Client(headers={"Host": "localhost"}).get("/api/openapi.json").status_code == 401
    assert api.get(reverse("api:openapi-json")).json()["openapi"].startswith("3.")
