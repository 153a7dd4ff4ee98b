"""Many runs at once, all that match among them; saved views; completion: on the page and by the API."""

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from console.sign_in.api_token import make_token
from jobs.models import Command, Project, Run, SavedView
from tests.console.commands import run_command
from tests.rows import NOW, make_project, make_run, make_user, signed_in

pytestmark = pytest.mark.django_db


@pytest.fixture
def project() -> Project:
    return make_project()


@pytest.fixture
def editor(project: Project) -> Client:
    return signed_in(make_user("mara", project=project))


def named(project: Project, name: str, **fields: Any) -> Run:
    return make_run(project, spec={"name": name, "knobs": {}}, **fields)


def send(client: Client, verb: str, ids: list[str], tags: str = "") -> dict[str, Any]:
    answer = client.post(reverse("change-runs"), {"verb": verb, "ids": ",".join(ids), "tags": tags})
    data: dict[str, Any] = answer.json()
    return data


def test_all_that_match_are_named_on_all_pages(editor: Client, project: Project) -> None:
    going = named(project, "a going", state="running")
    ended = [named(project, f"a {i}", state="finished") for i in range(3)]
    named(project, "other")

    found = editor.get(reverse("run-ids"), {"q": "name:a", "sort": "name"}).json()
    wrong = editor.get(reverse("run-ids"), {"q": "stat:x"})

    assert found == {"ids": [*(run.pk for run in ended), going.pk], "live": [going.pk], "is_all": True}
    assert wrong.status_code == 422


def test_what_was_done_to_many_is_undone_exactly(editor: Client, project: Project) -> None:
    one, two = named(project, "a", tags=["x"], state="finished"), named(project, "b", tags=["y"], state="finished")
    ids = [one.pk, two.pk]

    tagged = send(editor, "tag", ids, "x y")
    for step in tagged["undo"]:
        send(editor, step["verb"], step["ids"], " ".join(step["tags"]))

    assert set(tagged["done"]) == set(ids)
    assert list(Run.objects.order_by("name").values_list("tags", flat=True)) == [["x"], ["y"]]


def test_deleted_runs_are_taken_back(editor: Client, project: Project) -> None:
    mine = named(project, "a", state="finished", created_by=project.membership_set.get().user)
    foreign = named(project, "b", state="finished")

    deleted = send(editor, "delete", [mine.pk, foreign.pk])
    assert (deleted["done"], [r["id"] for r in deleted["refused"]]) == ([mine.pk], [foreign.pk])
    assert 'data-name="a"' not in editor.get(reverse("runs"), {"q": "name:a"}).content.decode()
    (step,) = deleted["undo"]
    back = send(editor, step["verb"], step["ids"])

    assert back["text"] == "1 run taken back"
    assert 'data-name="a"' in editor.get(reverse("runs"), {"q": "name:a"}).content.decode()


def test_stopped_runs_go_on_or_stand_in_the_queue_again(editor: Client, project: Project) -> None:
    going, waiting = named(project, "a", state="running"), named(project, "b")

    stopped = send(editor, "stop", [going.pk, waiting.pk])
    assert sorted(Run.objects.values_list("state", flat=True)) == ["stopped", "stopping"]
    (step,) = stopped["undo"]
    back = send(editor, step["verb"], step["ids"])

    assert (back["text"], back["refused"]) == ("2 runs go on", [])
    assert list(Run.objects.order_by("name").values_list("state", "latest_attempt")) == [("running", 1), ("queued", 2)]
    assert not Run.objects.filter(is_stop_requested=True).exists()
    send(editor, "stop", [going.pk])
    Command.objects.update(not_before=NOW)
    assert "is stopping already" in send(editor, step["verb"], [going.pk])["refused"][0]["message"]


def test_the_api_changes_what_a_filter_leaves(
    editor: Client, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [named(project, f"old {i}", state="finished") for i in range(3)]

    def ask(**body: Any) -> Any:
        return editor.post("/api/runs/change", body, content_type="application/json")

    dry = ask(verb="archive", q="name:old", is_dry_run=True).json()
    assert set(dry["done"]) == {run.pk for run in runs}
    assert not Run.objects.exclude(archived_at=None).exists()
    done = ask(verb="archive", q="name:old").json()
    assert [step["verb"] for step in done["undo"]] == ["restore"]
    assert Run.objects.filter(archived_at=None).count() == 0
    assert ask(verb="archive").status_code == 422
    assert ask(verb="tag", q="lr>").json()["problems"][0]["field"] == "q"
    monkeypatch.setattr("console.api.runs.run_lists.AT_ONCE", 2)
    assert "more than 2 runs" in ask(verb="restore", q="name:old", archived=True).json()["problems"][0]["message"]


def test_a_view_is_kept_shown_and_shared_by_its_address(editor: Client, project: Project) -> None:
    named(project, "alpha", state="failed")
    named(project, "beta", state="failed")
    form = {"name": "Broken alphas", "view": "failed", "q": "name:alpha", "sort": "name", "c": "step,elapsed"}

    shown = editor.post(reverse("save-view"), form, follow=True).content.decode()
    editor.post(reverse("save-view"), form | {"q": "name:beta"})
    saved = SavedView.objects.get()
    other = signed_in(make_user(project=project, role="viewer"))
    theirs = other.get(f"/runs?saved={saved.pk}").content.decode()
    narrowed = other.get(f"/runs?saved={saved.pk}&q=nothing").content.decode()

    assert 'data-name="alpha"' in shown
    assert 'data-name="beta"' not in shown
    assert 'data-name="beta"' in theirs
    assert "No run matches the filter." in narrowed
    assert other.post(reverse("delete-view", args=[saved.pk])).status_code == 404
    assert editor.post(reverse("delete-view", args=[saved.pk])).status_code == 302
    assert not SavedView.objects.exists()


def test_only_editors_keep_views_for_the_project(editor: Client, project: Project) -> None:
    viewer = signed_in(make_user(project=project, role="viewer"))
    address = f"/api/projects/{project.slug}/run-views"

    def keep(client: Client, **body: Any) -> Any:
        return client.post(address, {"name": "v", **body}, content_type="application/json")

    assert keep(viewer, is_shared=True).status_code == 403
    shared = keep(editor, is_shared=True, q="state:failed").json()
    assert keep(viewer).status_code == 201
    assert [view["is_shared"] for view in viewer.get(address).json()["views"]] == [True, False]
    assert viewer.delete(f"{address}/{shared['id']}").status_code == 403
    assert editor.delete(f"{address}/{shared['id']}").status_code == 204
    assert keep(editor, q="(").json()["problems"][0]["field"] == "q"
    assert keep(editor, sort="-beauty").json()["problems"][0]["field"] == "sort"


def test_the_line_is_completed_for_page_and_api(editor: Client, project: Project) -> None:
    page = editor.get(reverse("complete-filter"), {"q": "state:fai", "at": "9"}).json()
    api = editor.get("/api/runs/complete", {"q": "state:fai"}).json()

    assert page == api == {"start": 6, "end": 9, "suggestions": [{"text": "failed", "about": ""}]}


def test_a_wrong_piece_is_marked_where_it_stands(editor: Client, project: Project) -> None:
    page = editor.get(reverse("runs"), {"q": "a stat:x b"}).content.decode()

    assert "a <mark>stat:x</mark> b" in page


@pytest.mark.usefixtures("served_here")
def test_the_command_line_lists_and_changes(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    user = make_user("mara", project=project)
    monkeypatch.setenv("PITWALL_API_TOKEN", make_token(user=user, name="shell")[1])
    run = named(project, "old one", state="finished", tags=["x"])
    named(project, "other", state="failed")

    code, listed, _errors = run_command("runs", "name:old", "--sort", "name")
    assert (code, run.pk in listed, "#x" in listed, "1 of 1 run\n" in listed) == (0, True, True, True)
    assert run_command("runs", "name:old", "--do", "archive")[1] == "archive: 1 run changed\n"
    assert run.pk in run_command("runs", "tag:x", "--archived")[1]
    code, _listed, errors = run_command("runs", "stat:x")
    assert (code, "There is no filter" in errors) == (3, True)
