"""The run list: filter, sort, columns, paging, verbs on many runs, CSV."""

import csv
import io
import re
from typing import Any

import numpy as np
import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from jobs.models import Attempt, Chunk, Metric, Project, Run, RunEvent
from jobs.runs.find.index import catch_up_all
from jobs.telemetry.chunks import encode_points, points
from tests.console.fake_runner import content
from tests.rows import make_project, make_run, make_user

pytestmark = pytest.mark.django_db


@pytest.fixture
def project() -> Project:
    return make_project()


@pytest.fixture
def editor(client: Client, project: Project) -> Client:
    user = make_user("mara", project=project)
    client.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
    return client


def run_of(project: Project, name: str, **fields: Any) -> Run:
    knobs = fields.pop("knobs", {})
    spec = {"name": name, "algorithm": fields.pop("algorithm", "grpo"), "knobs": knobs}
    return make_run(project, spec=spec, now=timezone.now(), **fields)


def names(page: str) -> list[str]:
    return re.findall(r'<tr id="[^"]+".*?data-name="([^"]*)"', page)


def listed(client: Client, **query: str) -> list[str]:
    answer = client.get(reverse("runs"), query)
    assert answer.status_code == 200
    return names(answer.content.decode())


def test_an_empty_list_offers_the_demo(editor: Client) -> None:
    assert "No runs yet. Start the demo run." in editor.get(reverse("runs")).content.decode()


def test_a_failed_row_shows_its_cause_and_a_waiting_one_its_reason(editor: Client, project: Project) -> None:
    run_of(project, "a", state="failed", cause={"text": "Disk full", "step": 3})
    run_of(project, "b", wait_reason="Behind r-1")

    page = editor.get(reverse("runs")).content.decode()

    assert "Disk full: step 3" in page
    assert "Behind r-1" in page


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("alpha", {"alpha one"}),
        ("ONE", {"alpha one"}),
        ("state:failed,running", {"beta", "gamma"}),
        ("tag:baseline", {"alpha one"}),
        ("-tag:baseline", {"beta", "gamma"}),
        ("algorithm:sft", {"gamma"}),
        ("by:mara", {"beta"}),
        ("optimizer.learning_rate>=2e-4 optimizer.learning_rate<1e-3", {"beta"}),
        ("learning_rate=1e-4", {"alpha one"}),
        ("reward/mean>0.5", {"alpha one"}),
        ("reward/mean>0.5 state:failed", set()),
    ],
)
def test_the_filter_line_narrows(editor: Client, project: Project, line: str, found: set[str]) -> None:
    mara = project.membership_set.get().user
    run_of(
        project,
        "alpha one",
        knobs={"optimizer.learning_rate": 1e-4},
        tags=["baseline"],
        latest_values={"reward/mean": 0.9},
    )
    run_of(project, "beta", knobs={"optimizer.learning_rate": 2e-4}, state="failed", created_by=mara)
    run_of(project, "gamma", algorithm="sft", state="running", latest_values={"reward/mean": "NaN"})

    assert set(listed(editor, q=line)) == found


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("state:done", "There is no state"),
        ("stat:failed", "There is no filter “stat:”. Use state"),
        ("tag:", "“tag:” stands alone"),
        ("learnin_rate>1", "Did you mean learning_rate?"),
        ("optimizer.learning_rate>much", "is not a number"),
        ("every_steps>3", "checkpoint.every_steps, eval.every_steps"),
        ("flux.capacitor>3", "There is no knob or metric"),
    ],
)
def test_a_wrong_filter_is_answered_by_a_sentence(editor: Client, project: Project, line: str, sentence: str) -> None:
    run_of(project, "a")

    page = editor.get(reverse("runs"), {"q": line}).content.decode().replace("&#x27;", "'")

    assert sentence in page
    assert 'role="alert"' in page


def test_saved_filters_count_and_narrow(editor: Client, project: Project) -> None:
    mara = project.membership_set.get().user
    run_of(project, "going", state="running")
    run_of(project, "broken", state="failed")
    run_of(project, "mine", created_by=mara, state="finished")
    run_of(project, "old", state="finished", archived_at=timezone.now())

    assert set(listed(editor)) == {"going", "broken", "mine"}
    assert listed(editor, view="running") == ["going"]
    assert listed(editor, view="failed") == ["broken"]
    assert listed(editor, view="mine") == ["mine"]
    assert listed(editor, view="archived") == ["old"]
    counts = re.findall(r'class="count">(\d+)<', editor.get(reverse("runs")).content.decode())
    assert counts == ["3", "1", "1", "1", "1", "0"]  # the last: the trash


@pytest.mark.parametrize(
    ("sort", "order"),
    [
        ("name", ["a", "b", "c"]),
        ("-name", ["c", "b", "a"]),
        ("-value", ["b", "a", "c"]),
        ("value", ["a", "b", "c"]),
        ("optimizer.learning_rate", ["c", "a", "b"]),
        ("-optimizer.learning_rate", ["b", "a", "c"]),
        ("-policy/entropy", ["a", "c", "b"]),
        ("-step", ["c", "b", "a"]),
        ("-started", ["c", "b", "a"]),
    ],
)
def test_any_column_sorts_and_what_has_no_value_comes_last(
    editor: Client, project: Project, sort: str, order: list[str]
) -> None:
    run_of(
        project,
        "a",
        knobs={"optimizer.learning_rate": 2e-4},
        step=1,
        latest_values={"reward/mean": 0.2, "policy/entropy": 1.0},
    )
    run_of(project, "b", knobs={"optimizer.learning_rate": 3e-2}, step=2, latest_values={"reward/mean": 0.7})
    run_of(project, "c", knobs={"optimizer.learning_rate": 1e-5}, step=3)

    assert listed(editor, sort=sort) == order


def test_an_unknown_column_to_sort_by_is_a_sentence(editor: Client, project: Project) -> None:
    run_of(project, "a")

    page = editor.get(reverse("runs"), {"sort": "-beauty"}).content.decode()

    assert "There is no column" in page


def test_columns_come_from_the_address_and_knobs_that_differ_are_framed(editor: Client, project: Project) -> None:
    run_of(project, "a", knobs={"rollout.temperature": 0.5})
    run_of(project, "b")

    page = editor.get(reverse("runs"), {"c": "rollout.temperature,policy/entropy,nonsense"}).content.decode()

    heads = re.findall(r'<th scope="col" class="c-[^>]*>(?:<a[^>]*>)?([^<]+)', page)
    assert heads == ["Temperature", "Entropy"]
    assert page.count('<span class="framed">0.5</span>') == 1
    assert page.count('class="framed"') == 1


def test_htmx_gets_the_results_alone_and_the_short_address(editor: Client, project: Project) -> None:
    run_of(project, "a")

    answer = editor.get(reverse("runs"), {"q": "a", "sort": "-started", "view": "all"}, headers={"HX-Request": "true"})

    assert "<html" not in answer.content.decode()
    assert names(answer.content.decode()) == ["a"]
    assert answer["HX-Push-Url"] == "/runs?q=a"


def test_single_rows_are_given_again_for_those_of_the_project_only(editor: Client, project: Project) -> None:
    mine, foreign = run_of(project, "mine"), make_run(make_project(), spec={"name": "foreign"})

    page = editor.get(reverse("run-rows"), {"ids": f"{mine.pk},{foreign.pk},nonsense"}).content.decode()

    assert names(page) == ["mine"]


def test_a_row_draws_its_main_metric_as_far_as_the_run_got(editor: Client, project: Project) -> None:
    run = run_of(project, "a", state="running", step=50, num_steps=100, seq=1, folded_seq=1)
    metric = Metric.objects.create(run=run, name="reward/mean")
    x = np.arange(1, 51)
    blob = encode_points(points(x, x * 10**9, np.linspace(0, 1, 50)))
    Chunk.objects.create(metric=metric, attempt=1, seq=0, n=50, x0=1, x1=50, through_seq=1, blob=blob)

    page = editor.get(reverse("runs")).content.decode()

    line = re.search(r'<polyline points="([^"]+)"', page)
    assert line
    pairs = [tuple(map(float, pair.split(","))) for pair in line[1].split()]
    assert pairs[0] == (0.0, 18.5)
    assert pairs[-1][1] == 1.5
    assert pairs[-1][0] == pytest.approx(84 * 49 / 99, abs=0.2)


def change(client: Client, verb: str, *runs: Run, tags: str = "") -> dict[str, Any]:
    fields = {"verb": verb, "ids": ",".join(run.pk for run in runs), "tags": tags}
    answer = client.post(reverse("change-runs"), fields)
    data: dict[str, Any] = answer.json()
    return data


def test_many_runs_are_tagged_and_untagged(editor: Client, project: Project) -> None:
    one, two = run_of(project, "a", tags=["x"]), run_of(project, "b")

    done = change(editor, "tag", one, two, tags="baseline, x")
    change(editor, "untag", two, tags="x")

    one.refresh_from_db()
    two.refresh_from_db()
    assert done["text"] == "2 runs tagged"
    assert one.tags == ["x", "baseline"]
    assert two.tags == ["baseline"]


def test_archiving_spares_what_still_runs_and_says_so(editor: Client, project: Project) -> None:
    ended, going = run_of(project, "ended", state="finished"), run_of(project, "going", state="running")

    said = change(editor, "archive", ended, going)
    restored = change(editor, "restore", ended)

    assert said["done"] == [ended.pk]
    assert said["refused"][0]["message"] == "going is running. Stop it before you archive it."
    assert restored["done"] == [ended.pk]


def test_stopping_cancels_what_waits_and_asks_what_runs(editor: Client, project: Project) -> None:
    queued, going, ended = (
        run_of(project, "q"),
        run_of(project, "r", state="running"),
        run_of(project, "e", state="failed"),
    )

    said = change(editor, "stop", queued, going, ended)

    assert set(said["done"]) == {queued.pk, going.pk}
    assert set(Run.objects.values_list("name", "state")) == {("q", "stopped"), ("r", "stopping"), ("e", "failed")}
    assert RunEvent.objects.filter(run=going, verb="stopping", actor__username="mara").exists()
    assert Attempt.objects.get(run=going).commands.get().verb == "stop"


def test_an_unknown_verb_is_refused_with_the_known_ones(editor: Client, project: Project) -> None:
    answer = editor.post(reverse("change-runs"), {"verb": "explode", "ids": ""})

    assert answer.status_code == 422
    assert "tag, untag, archive, restore, stop" in answer.json()["problem"]


def test_runs_of_other_projects_cannot_be_changed(editor: Client) -> None:
    foreign = make_run(make_project(), state="running")

    assert change(editor, "stop", foreign)["done"] == []
    assert editor.post(reverse("edit-run", args=[foreign.pk]), {"name": "mine now"}).status_code == 404
    foreign.refresh_from_db()
    assert foreign.state == "running"


def test_a_viewer_changes_nothing(client: Client, project: Project) -> None:
    run = run_of(project, "a", state="running")
    client.force_login(make_user(project=project, role="viewer"), backend="django.contrib.auth.backends.ModelBackend")

    assert client.post(reverse("change-runs"), {"verb": "stop", "ids": run.pk}).status_code == 403
    assert client.post(reverse("edit-run", args=[run.pk]), {"name": "b"}).status_code == 403
    assert 'data-act="stop"' not in client.get(reverse("runs")).content.decode()


def test_name_tags_and_note_are_edited_and_the_answer_holds_what_was(editor: Client, project: Project) -> None:
    run = run_of(project, "old name", tags=["x"])

    answer = editor.post(reverse("edit-run", args=[run.pk]), {"name": "new name", "tags": "y z", "note": "better"})

    run.refresh_from_db()
    assert (run.name, run.tags, run.note) == ("new name", ["y", "z"], "better")
    assert answer.json()["before"] == {"name": "old name", "tags": "x", "note": ""}


def test_a_wrong_edit_names_its_field_and_changes_nothing(editor: Client, project: Project) -> None:
    run = run_of(project, "old name")

    answer = editor.post(reverse("edit-run", args=[run.pk]), {"name": "", "tags": "t"})

    run.refresh_from_db()
    assert answer.status_code == 422
    assert answer.json()["field"] == "name"
    assert (run.name, run.tags) == ("old name", [])


def test_csv_holds_knobs_and_last_values_and_runs_no_formula(editor: Client, project: Project) -> None:
    run_of(project, "=1+1", knobs={"optimizer.learning_rate": 2e-4}, latest_values={"reward/mean": 0.5})
    run_of(project, "other", state="failed")

    answer = editor.get(reverse("runs-csv"), {"q": "state:queued"})
    rows = list(csv.DictReader(io.StringIO(content(answer).decode())))

    assert len(rows) == 1
    assert rows[0]["name"] == "'=1+1"
    assert rows[0]["optimizer.learning_rate"] == "0.0002"
    assert rows[0]["reward/mean"] == "0.5"


def test_csv_of_chosen_runs_and_of_a_wrong_filter(editor: Client, project: Project) -> None:
    one = run_of(project, "a")
    run_of(project, "b")

    chosen = editor.get(reverse("runs-csv"), {"ids": one.pk})
    wrong = editor.get(reverse("runs-csv"), {"q": "state:odd"})

    assert len(list(csv.reader(io.StringIO(content(chosen).decode())))) == 2
    assert wrong.status_code == 422
    assert "There is no state" in wrong.content.decode()


def test_pages_of_many_runs_come_from_the_database(
    editor: Client, project: Project, django_assert_max_num_queries: Any
) -> None:
    rows = [
        Run(
            id=f"r-number{i:05}",  # drawn ones meet now and then
            project=project,
            name=f"number {i:05}",
            spec={"algorithm": "grpo", "knobs": {}},
            state="finished",
            latest_values={"reward/mean": i / 1e4},
        )
        for i in range(2_050)
    ]
    Run.objects.bulk_create(rows, batch_size=500)
    catch_up_all()

    with django_assert_max_num_queries(24):
        page = editor.get(reverse("runs"), {"sort": "-value", "page": "41"}).content.decode()
    broad = editor.get(reverse("runs"), {"sort": "-value", "q": "reward/mean>=0"}).content.decode()

    assert len(names(page)) == 50
    assert "2,001–2,050 of 2,050 runs" in page
    assert names(page)[-1] == "number 00000"
    assert "1–50 of more than 2,000 runs" in broad


def test_a_page_beyond_the_last_is_the_last(editor: Client, project: Project) -> None:
    run_of(project, "only")

    assert listed(editor, page="99") == ["only"]
