"""Quotas and data files on *Settings*, what fills on *Cluster*, the same by API and command."""

import json
import re
from datetime import timedelta
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import AbstractUser
from django.core.cache import cache
from django.test import Client
from django.utils import timezone

from console.labels.numbers import about_days, growth
from console.sign_in.api_token import make_token
from jobs.ingest.store import AttemptCache, store
from jobs.models import DiskSample, Project, Quota, RunEvent, Upload
from jobs.preflight.data_files import store_upload
from jobs.storage import quotas
from jobs.storage.floor import read_disk
from profiling import events
from tests.batches import delivery
from tests.console.commands import run_command, served_here  # noqa: F401 (fixture)
from tests.rows import NOW, make_project, make_run, make_user, signed_in

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _home(settings: Any, tmp_path: Path) -> None:
    settings.FILES_DIR = tmp_path
    cache.clear()


@pytest.fixture
def project() -> Project:
    return make_project("team")


@pytest.fixture
def editor(project: Project) -> AbstractUser:
    return make_user("ed", project=project)


@pytest.fixture
def root() -> AbstractUser:
    user = make_user("root")
    user.is_superuser = True
    user.save()
    return user


def page(client: Client, address: str) -> str:
    answer = client.get(address)
    assert answer.status_code == 200
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", answer.content.decode())).split())


def test_members_see_use_beside_limits_with_a_bar_and_when_it_is_near(project: Project, editor: AbstractUser) -> None:
    Upload.objects.create(project=project, sha256="0" * 64, file_name="a.jsonl", size=85 << 20, created_by_id=editor.pk)
    quotas.set_quota(project, values={"storage_bytes": 100 << 20, "live_runs": 4}, actor=None)
    quotas.set_quota(editor, values={"uploads": 1}, actor=None)

    text = page(signed_in(editor), "/settings")
    raw = signed_in(editor).get("/settings").content.decode()

    assert "Storage 85 MiB / 100 MiB nearly used up" in text
    assert "Runs at once 0 / 4 GPU hours" in text
    assert "Data files, number 1 / 1 used up" in text
    assert 'value="0.8500"' in raw
    assert 'id="quotas"' not in raw


def test_an_editor_deletes_data_files_from_the_page(project: Project, editor: AbstractUser) -> None:
    row = store_upload(project=project, file_name="a.jsonl", chunks=[b"{}\n"], user=editor, now=NOW)
    run = make_run(project, spec={"data": {"kind": "upload", "id": f"upload:{row.sha256}"}}, name="Mine")
    client = signed_in(editor)
    assert "a.jsonl" in page(client, "/settings")
    assert "1 run that uses it has not ended" in client.get("/settings").content.decode()

    said = page_after(client, row.sha256)
    assert f"a.jsonl is used by {run.pk}, which have not ended" in said
    said = page_after(client, row.sha256, force="1")

    assert "a.jsonl is deleted." in said
    assert "No data file was uploaded to this project." in said
    assert "gone already" in page_after(client, row.sha256)


def page_after(client: Client, sha256: str, **more: str) -> str:
    answer = client.post("/settings/team/uploads/delete", {"sha256": sha256, **more}, follow=True)
    return unescape(answer.content.decode())


def test_a_superuser_sets_quotas_of_any_project_or_person(project: Project, root: AbstractUser) -> None:
    client = signed_in(root)
    fields = {"quota_of": "project:team", "storage_bytes": "1.5", "live_runs": "4", "gpu_hours": "", "stops_runs": "1"}

    answer = client.post("/settings/quotas", fields, follow=True).content.decode()

    row = Quota.objects.get(project=project)
    assert (row.storage_bytes, row.live_runs, row.gpu_hours, row.stops_runs) == (3 << 29, 4, None, True)
    assert "The quotas of team are set." in answer
    assert 'value="1.5"' in answer
    assert 'data-quota-of="project:team"' in answer


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"quota_of": "project:nobody"}, "There is no project or person 'project:nobody'."),
        ({"quota_of": "team"}, "There is no project or person 'team'."),
        ({"quota_of": "project:team", "live_runs": "four"}, "live_runs: four is not a whole number from 0 on"),
        ({"quota_of": "project:team", "storage_bytes": "1e400"}, "storage_bytes: inf is not"),
        ({"quota_of": "project:team", "uploads": "-1"}, "uploads: -1.0 is not"),
    ],
)
@pytest.mark.usefixtures("project")
def test_a_form_that_makes_no_sense_is_told_what_is_wrong(
    fields: dict[str, str], words: str, root: AbstractUser
) -> None:
    answer = signed_in(root).post("/settings/quotas", fields, follow=True)

    assert words in unescape(answer.content.decode())
    assert not Quota.objects.exists()


@pytest.mark.usefixtures("served_here")
def test_quotas_by_api_and_command(project: Project, editor: AbstractUser, root: AbstractUser, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(make_token(user=root, name="t")[1])

    code, out, _err = run_command("quota", "project:team", "storage_bytes=2GiB", "live_runs=4", "--token-file", token)
    assert code == 0
    assert re.search(r"storage_bytes\s+0 MiB of 2\.0 GiB", out)
    code, out, _err = run_command("quota", "person:ed", "gpu_hours=none", "--token-file", token)
    assert re.search(r"gpu_hours\s+0\.0 h of no limit", out)
    code, out, _err = run_command("quota", "--token-file", token)
    assert [line for line in out.splitlines() if not line.startswith(" ")] == ["project:team", "person:ed"]
    code, _out, err = run_command("quota", "project:none", "live_runs=4", "--token-file", token)
    assert (code, "There is no project 'none'" in err) == (3, True)

    client = signed_in(editor)
    uses = {use["name"]: use for use in client.get("/api/quotas/projects/team").json()["uses"]}
    assert uses["live_runs"] == {"name": "live_runs", "used": 0, "most": 4, "is_near": False}
    assert client.get("/api/quotas/mine").json()["of"] == "person:ed"
    body = json.dumps({"live_runs": -4})
    refused = signed_in(root).put("/api/quotas/projects/team", body, content_type="application/json")
    assert (refused.status_code, refused.json()["problems"][0]["field"]) == (422, "live_runs")


def samples(*, grown_per_day: int) -> None:
    used = read_disk().used
    for days in range(5):
        values = {"disk": used - days * grown_per_day, "database": 1, "uploads": 1}
        DiskSample.objects.create(hour=timezone.now() - timedelta(days=days), values=values)


def test_what_fills_is_shown_with_a_forecast_and_projects_of_others_without_a_name(
    project: Project, editor: AbstractUser, root: AbstractUser
) -> None:
    Upload.objects.create(project=project, sha256="0" * 64, file_name="a.jsonl", size=3 << 20)
    Upload.objects.create(project=make_project("secret"), sha256="1" * 64, file_name="a.jsonl", size=5 << 20)
    client = signed_in(editor)
    assert "— a day of samples is needed" in page(client, "/cluster")
    disk = read_disk()
    samples(grown_per_day=(disk.free - disk.keep) // 12)

    text = page(client, "/cluster")

    assert "about 12 days" in text
    assert "Data files 8.0 MiB 0 B" in text
    assert "Another project 5.0 MiB Team team 3.0 MiB" in text
    state = client.get("/api/cluster/storage").json()
    assert state["places"][0]["forecast"]["days_left"] == pytest.approx(12, abs=0.1)
    assert [each["slug"] for each in state["projects"]] == ["", "team"]
    assert state["projects"][0]["kinds"] == {}
    assert state["level"] == "free"
    seen = signed_in(root).get("/api/cluster/storage").json()["projects"]
    assert [each["slug"] for each in seen] == ["secret", "team"]


def test_the_disks_of_run_directories_are_those_of_live_runs_each_node_once(
    project: Project, editor: AbstractUser
) -> None:
    first, second = (make_run(project, state="running", now=NOW + timedelta(hours=i)) for i in range(2))
    note = {"nodes": [{"index": 0, "name": "head"}, {"index": 1, "name": "far"}, 7]}
    for run in (first, second):
        RunEvent.objects.create(run=run, attempt=1, at=NOW, verb="note", text="", data=note)
        t = int((timezone.now().timestamp() - 10) * 1e9)
        batch = [
            events.system(
                {"disk_free_bytes": free * 1e9, "disk_total_bytes": 100e9}, attempt=1, role="node", rank=rank, t=t
            )
            for rank, free in ((0, 60), (1, 5))
        ]
        store([delivery(run.pk, 1, batch)], memory=AttemptCache(), now=NOW)

    disks = signed_in(editor).get("/api/cluster").json()["disks"]

    assert [(disk["node"], disk["free"], disk["run_id"]) for disk in disks] == [
        ("far", 5_000_000_000, second.pk),
        ("head", 60_000_000_000, second.pk),
    ]
    assert "far nearly full 88.5 GiB 4.7 GiB" in page(signed_in(editor), "/cluster")
    assert signed_in(make_user("outsider", project=make_project())).get("/api/cluster").json()["disks"] == []


def test_growth_and_what_is_left_in_words() -> None:
    assert [growth(value) for value in (None, 0, 1536, -1536)] == ["—", "0 B", "+1.5 KiB", "−1.5 KiB"]
    assert [about_days(days) for days in (0.4, 1, 11.6, None)] == [
        "less than a day",
        "about 1 day",
        "about 12 days",
        "—",
    ]
