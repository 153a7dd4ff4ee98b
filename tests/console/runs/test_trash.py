"""Deleting runs through API, page and command line, and what stands in the trash."""

import json
from typing import Any

import pytest
from django.contrib.auth.models import AbstractUser
from django.core.management.base import CommandError
from django.test import Client
from django.utils import timezone

from console.sign_in.api_token import make_token
from jobs.models import Project, TrashItem
from jobs.retention.deletion import delete_runs
from tests.console.commands import run_command
from tests.rows import NOW, make_artifact, make_project, make_run, make_user, signed_in

pytestmark = pytest.mark.django_db


@pytest.fixture
def project() -> Project:
    return make_project("lab")


@pytest.fixture
def admin(project: Project) -> AbstractUser:
    return make_user("boss", project=project, role="admin")


@pytest.fixture
def client(admin: AbstractUser) -> Client:
    return signed_in(admin)


def post(client: Client, address: str, **body: Any) -> Any:
    return client.post(address, json.dumps(body), content_type="application/json").json()


def test_many_runs_are_deleted_each_with_its_result(project: Project, client: Client) -> None:
    old = make_run(project, state="finished", spec={"name": "old"})
    make_artifact(old, "checkpoint-5", type="checkpoint", size=2048, received=0, step=5)
    live, queued = make_run(project, state="running", spec={"name": "live"}), make_run(project)
    ids = [old.pk, live.pk, queued.pk, "r-none"]

    dry = post(client, "/api/runs/delete", ids=ids, stop=True, is_dry_run=True)["runs"]
    assert [row["outcome"] for row in dry] == ["trashed", "stopping", "trashed", "refused"]
    assert dry[0]["bytes_cluster"] == 2048
    assert not TrashItem.objects.exists()
    done = post(client, "/api/runs/delete", ids=ids)["runs"]

    assert [row["outcome"] for row in done] == ["trashed", "refused", "refused", "refused"]
    assert done[1]["message"] == "live is running. Stop it before you delete it."
    listed = client.get("/api/trash").json()
    assert [(row["run_name"], row["author"], row["may_change"]) for row in listed["entries"]] == [("old", "boss", True)]
    item = listed["entries"][0]["id"]
    assert client.delete(f"/api/trash/{item}?confirm=no").status_code == 422
    assert client.post(f"/api/trash/{item}/restore").status_code == 200
    assert client.delete(f"/api/runs/{old.pk}").json()["outcome"] == "trashed"
    assert client.delete(f"/api/runs/{live.pk}").status_code == 409
    item = TrashItem.objects.get().pk
    assert client.delete(f"/api/trash/{item}?confirm=old").status_code == 202
    assert TrashItem.objects.get().purge_at <= timezone.now()


def test_links_to_a_run_in_the_trash_say_so_and_give_it_back(
    project: Project, client: Client, admin: AbstractUser
) -> None:
    run, other = make_run(project, state="finished", spec={"name": "old"}), make_run(project, state="finished")
    delete_runs(runs=[run], user=admin, stop=False, now=NOW)
    viewer = signed_in(make_user(project=project, role="viewer"))

    for address in (f"/runs/{run.pk}", f"/runs/{run.pk}/logs", f"/compare?runs={run.pk}"):
        page = client.get(address)
        assert page.status_code == 410
        assert "old is in the trash" in page.content.decode()
        assert "Restore" in page.content.decode()
    assert "Restore" not in viewer.get(f"/runs/{run.pk}").content.decode()
    assert "is in the trash" in client.get(f"/api/runs/{run.pk}").json()["problems"][0]["message"]
    assert "is in the trash" in client.get(f"/compare?runs={run.pk},{other.pk}").content.decode()
    assert client.get("/frame/search?q=old").json() == {"runs": []}

    back = client.post(f"/trash/{TrashItem.objects.get().pk}", {"verb": "restore"})
    assert back["Location"] == f"/runs/{run.pk}"
    assert client.get(f"/runs/{run.pk}").status_code == 200


def test_the_question_names_what_goes_and_how_much(project: Project, client: Client, admin: AbstractUser) -> None:
    run, live = make_run(project, state="finished", spec={"name": "old"}), make_run(project, state="running")
    make_artifact(run, "checkpoint-5", type="checkpoint", size=3 << 20, received=0, step=5)

    question = client.get(f"/runs/deletion?ids={run.pk},{live.pk}").json()

    assert set(question["ids"]) == {run.pk, live.pk}
    assert f"old ({run.pk})" in question["names"]
    assert "3.0 MiB of checkpoints" in question["text"]
    assert "1 is live and is stopped first." in question["text"]
    answer = client.post("/runs/change", {"verb": "delete", "ids": f"{run.pk},{live.pk}"}).json()
    assert answer["text"] == "2 runs go to the trash"
    page = client.get("/trash").content.decode()
    assert "goes to the trash when it has stopped" in page
    assert "the whole run" in page
    assert "boss" in page


def test_rules_are_tried_set_and_shown(project: Project, client: Client) -> None:
    run = make_run(project, state="finished", spec={"name": "old"})
    for step in (5, 10):
        make_artifact(run, f"checkpoint-{step}", type="checkpoint", size=2 << 20, received=0, step=step)
    rules = {"checkpoints": {"keep_last": 1}}
    address = "/api/projects/lab/retention"

    dry = post(client, f"{address}/preview", rules=rules)
    assert (dry["total"], dry["bytes_cluster"], dry["going"][0]["num_things"]) == (1, 2 << 20, 1)
    page = client.post("/settings/lab/retention/change", {"checkpoints.keep_last": "1", "preview": "1"})
    assert "2.0 MiB on the cluster; nothing has changed yet" in page.content.decode()
    assert client.get(address).json()["rules"] == {}
    refused = client.post("/settings/lab/retention/change", {"checkpoints.keep_best": "1"})
    assert (refused.status_code, "else all would go at once" in refused.content.decode()) == (422, True)

    client.post("/settings/lab/retention/change", {"checkpoints.keep_last": "1", "trash_days": "7"})

    kept = client.get(address).json()
    assert (kept["rules"]["checkpoints"]["keep_last"], kept["trash_days"]) == (1, 7)
    bad = client.put(address, json.dumps({"rules": {"logs": {"days": 0}}}), content_type="application/json")
    assert bad.json()["problems"][0]["field"] == "logs.days"


@pytest.mark.usefixtures("served_here")
def test_commands_delete_list_and_take_back(
    project: Project, admin: AbstractUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PITWALL_API_TOKEN", make_token(user=admin, name="cli")[1])
    run, live = make_run(project, state="finished", spec={"name": "old"}), make_run(project, state="running")

    assert "would go to the trash" in run_command("delete", run.pk, "--dry-run")[1]
    code, said, refused = run_command("delete", run.pk, live.pk)
    assert (code, f"{run.pk} old: went to the trash" in said) == (3, True)
    assert "Stop it before you delete it" in refused
    item = TrashItem.objects.get().pk
    assert f"{item}  run of {run.pk} old" in run_command("trash")[1]
    assert run_command("trash", "--restore", str(item))[0] == 0
    assert run_command("trash")[1] == "The trash is empty.\n"


@pytest.mark.usefixtures("served_here")
def test_a_command_shows_tries_and_sets_what_ended_runs_keep(
    project: Project, admin: AbstractUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PITWALL_API_TOKEN", make_token(user=admin, name="cli")[1])

    assert run_command("retention", project.slug)[1] == "Everything is kept for good.\ntrash        30 days\n"
    assert "0 would go now" in run_command("retention", project.slug, "logs:days=1", "--dry-run")[1]
    assert run_command("retention", project.slug)[1].startswith("Everything")
    run_command("retention", project.slug, "logs:days=1", "captures:keep_last=3", "--trash-days", "7")
    said = run_command("retention", project.slug, "logs:none")[1]
    assert said == "captures     keep_last 3, keep_best 0\ntrash        7 days\n"

    with pytest.raises(CommandError, match="'logs:days=soon' is not of the form"):
        run_command("retention", project.slug, "logs:days=soon")
    assert run_command("retention", project.slug, "weights:days=1")[0] == 3


def test_an_empty_trash_says_what_it_is_for(client: Client) -> None:
    assert "can be taken back here for 30 days" in client.get("/trash").content.decode()
