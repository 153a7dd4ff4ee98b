"""The card that says what a run looks like, by page and API, and New run as the clone that a remedy asks for."""

import html
import json
import re

import pytest
from django.test import Client
from django.urls import reverse

from jobs.ingest.store import AttemptCache, store
from jobs.models import Attempt, Project, Run
from profiling import events as make
from tests.attempts import end
from tests.batches import delivery, metric
from tests.rows import NOW, make_project, make_run, make_user

pytestmark = pytest.mark.django_db

NO_DEVICE_MEMORY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
SPEC = {"knobs": {"train.micro_batch_size": 4}}


@pytest.fixture
def project() -> Project:
    return make_project()


@pytest.fixture
def editor(project: Project, client: Client) -> Client:
    client.force_login(make_user(project=project))
    return client


def failed_run(project: Project, *, said: str = NO_DEVICE_MEMORY) -> Run:
    """Return a run whose policy said this before it died."""
    run = make_run(project, state="running", spec=SPEC)
    line = make.log([said], attempt=1, role="policy", stream="stderr")
    store([delivery(run.pk, 1, [line])], memory=AttemptCache(), now=NOW)
    end(run)
    return run


def card(client: Client, run: Run) -> str:
    answer = client.get(reverse("run-symptoms", args=[run.pk]))
    assert answer.status_code == 200
    return answer.content.decode()


def clones(text: str) -> list[str]:
    return [html.unescape(url) for url in re.findall(r'href="([^"]*)" data-remedy', text)]


def test_the_page_asks_for_the_card(editor: Client, project: Project) -> None:
    run = failed_run(project)

    page = editor.get(reverse("run", args=[run.pk])).content.decode()

    assert f'hx-get="{reverse("run-symptoms", args=[run.pk])}"' in page


def test_the_card_has_the_evidence_and_the_remedies_in_order(editor: Client, project: Project) -> None:
    run = failed_run(project)

    text = card(editor, run)

    assert "What this looks like" in text
    assert NO_DEVICE_MEMORY in text
    assert text.index("Halve the micro batch") < text.index("Give the rollout engine less of the device")
    assert "Micro-batch: 2 instead of 4" in text
    assert f'href="{reverse("guide-symptom", args=["memory.device"])}"' in text
    assert clones(text)[0] == f"/runs/new?from={run.pk}&set=train.micro_batch_size%3D2"
    assert re.search(rf'href="/runs/{run.pk}/logs\?line=\d+\.0"', text)


def test_nothing_is_shown_where_nothing_matches(editor: Client, project: Project) -> None:
    assert card(editor, failed_run(project, said="It was a fine day.")).strip() == ""
    assert card(editor, make_run(project)).strip() == ""


def test_a_line_of_the_log_cannot_leave_its_place(editor: Client, project: Project) -> None:
    text = card(editor, failed_run(project, said=f"<script>alert(1)</script> {NO_DEVICE_MEMORY}"))

    assert "&lt;script&gt;" in text
    assert "<script>" not in text


def test_a_viewer_sees_what_it_looks_like_and_is_offered_no_clone(client: Client, project: Project) -> None:
    client.force_login(make_user(project=project, role="viewer"))

    text = card(client, failed_run(project))

    assert "Halve the micro batch" in text
    assert clones(text) == []
    assert "new?from" not in text


def test_every_clone_on_offer_is_a_form_with_that_change_alone(editor: Client, project: Project) -> None:
    run = failed_run(project)

    for url in clones(card(editor, run)):
        context = editor.get(url).context
        assert context["notice"] == ""
        assert context["script"]["shows"] == "changed"
        texts = context["values"] | {"base": context["base_text"]}
        answer = editor.post(reverse("new-run-check"), texts).json()
        asked = {f"knobs.{part.split('=')[0]}" for part in re.findall(r"set=([^&]*)", url.replace("%3D", "="))}
        assert answer["problems"] == []
        assert set(answer["changed"]) == asked


def test_a_clone_remembers_that_a_person_made_the_change(editor: Client, project: Project) -> None:
    context = editor.get(clones(card(editor, failed_run(project)))[0]).context
    texts = context["values"] | {"base": context["base_text"]}

    answer = editor.post(reverse("new-run-check"), texts).json()

    knobs = json.loads(answer["full"])["knobs"]
    assert knobs["train.micro_batch_size"] == {"value": 2, "origin": "you"}


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ("train.micro_batch=2", "This run has no knob &#x27;train.micro_batch&#x27;."),
        ("train.micro_batch_size=many", "&#x27;many&#x27; is not allowed for Micro-batch"),
        ("", "This run has no knob &#x27;&#x27;."),
    ],
)
def test_what_an_address_cannot_set_is_said(editor: Client, project: Project, asked: str, says: str) -> None:
    run = make_run(project, spec=SPEC)

    page = editor.get("/runs/new", {"from": run.pk, "set": asked})

    assert says in page.content.decode()
    assert page.context["by"]["knobs"]["train"]["micro_batch_size"] == "4"
    assert page.context["script"]["shows"] == ""


def test_an_address_sets_no_knob_that_names_code(editor: Client, project: Project) -> None:
    run = make_run(project, spec={"trainer": {"name": "openrlhf"}})

    page = editor.get("/runs/new", {"from": run.pk, "set": "agent.function_path=/tmp/mine.py"})

    assert page.context["by"]["knobs"]["agent"]["function_path"] == ""
    assert "cannot be set by the address" in page.content.decode()


def test_the_api_gives_changes_as_values_and_the_place_of_a_line(editor: Client, project: Project) -> None:
    run = failed_run(project)

    answer = editor.get(f"/api/runs/{run.pk}/symptoms").json()

    (symptom,) = answer["symptoms"]
    assert (symptom["id"], answer["attempt"], answer["num_lines"]) == ("memory.device", 1, 1)
    assert symptom["remedies"][0]["changes"] == {"train.micro_batch_size": 2}
    (evidence,) = symptom["evidence"]
    assert (evidence["kind"], evidence["role"], evidence["rank"]) == ("log", "policy", 0)
    shown = editor.get(f"/api/runs/{run.pk}/logs", {"after": f"{evidence['cursor'].partition('.')[0]}.0", "limit": 5})
    assert shown.status_code == 200


def test_what_may_follow_from_another_symptom_is_folded_under_it(editor: Client, project: Project) -> None:
    run = make_run(project, state="running")
    values = {"kl/reference": 2.9, "response/truncated_fraction": 1.0}
    reported = [metric(step, **values) for step in range(1, 31)]
    store([delivery(run.pk, 1, reported)], memory=AttemptCache(), now=NOW)

    shown, folded = card(editor, run).split('<details class="run-hints">')
    by_id = {each["id"]: each for each in editor.get(f"/api/runs/{run.pk}/symptoms").json()["symptoms"]}

    assert 'data-symptom="learning.kl_runs_away"' in shown
    assert 'data-symptom="learning.truncated"' in folded
    assert "1 more, which may follow from the above: Responses are cut" in " ".join(folded.split())
    assert "May follow from: The policy runs away from its reference." in folded
    assert by_id["learning.truncated"]["follows"] == ["learning.kl_runs_away"]
    assert by_id["learning.kl_runs_away"]["follows"] == []


def test_an_attempt_is_named_where_there_are_several(editor: Client, project: Project) -> None:
    run = failed_run(project)
    assert "attempt 1" not in card(editor, run)

    Attempt.objects.create(run=run, number=2, submission_id=f"{run.pk}-2")
    Run.objects.filter(pk=run.pk).update(latest_attempt=2, state="queued")

    assert "attempt 1" in card(editor, run)
