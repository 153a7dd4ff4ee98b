"""Home: what needs one now, what runs, what waits; and the demo that starts from it."""

from datetime import timedelta

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from console.time_zone import COOKIE
from jobs.models import Attempt, HealthMark, Project, Run
from tests.rows import NOW, make_project, make_run, make_user

pytestmark = pytest.mark.django_db


@pytest.fixture
def project() -> Project:
    return make_project()


@pytest.fixture
def editor(client: Client, project: Project) -> Client:
    client.force_login(make_user(project=project), backend="django.contrib.auth.backends.ModelBackend")
    return client


def home(client: Client) -> str:
    return client.get(reverse("home")).content.decode()


def test_an_empty_project_offers_the_demo(editor: Client) -> None:
    page = home(editor)

    assert "No runs yet. Start the demo run." in page
    assert f'action="{reverse("start-demo")}"' in page


def test_the_button_queues_the_demo_once_however_often_it_is_pressed(editor: Client, project: Project) -> None:
    first = editor.post(reverse("start-demo"), {"key": "first-demo"})
    second = editor.post(reverse("start-demo"), {"key": "first-demo"})

    run = Run.objects.get()
    assert first["Location"] == second["Location"] == reverse("run", args=[run.pk])
    assert run.project == project
    assert run.spec["algorithm"] == "grpo"
    assert run.spec["model"] == {"kind": "bundled", "id": "tiny-word-problems", "revision": ""}


@pytest.mark.parametrize(
    ("zone", "told"),
    [("Asia/Kolkata", "17:30:00 IST"), *((zone, "12:00:00 UTC") for zone in ("", "No/Where", "Asia", "../../passwd"))],
)
def test_times_are_those_of_the_reader_s_clock(editor: Client, project: Project, zone: str, told: str) -> None:
    make_run(project, now=NOW)
    editor.cookies[COOKIE] = zone

    assert f'title="2026-11-20 {told}"' in home(editor)


def test_a_viewer_may_look_but_not_launch(client: Client, project: Project) -> None:
    client.force_login(make_user(project=project, role="viewer"), backend="django.contrib.auth.backends.ModelBackend")

    page = home(client)
    answer = client.post(reverse("start-demo"))

    assert "may look, but not launch" in page
    assert answer.status_code == 403
    assert "needs the role editor" in answer.content.decode()
    assert not Run.objects.exists()


def test_a_failed_run_stands_first_with_its_cause_and_what_to_do(editor: Client, project: Project) -> None:
    now = timezone.now()
    cause = {"side": "trainer", "text": "Out of memory", "role": "policy", "rank": 1, "step": 143}
    run = make_run(project, spec={"name": "big one"}, state="failed", now=now, cause=cause)

    page = home(editor)

    assert "1 run failed" in page
    assert "Out of memory: policy 1, step 143" in page
    assert f'href="/runs/{run.pk}/logs"' in page


def test_a_silent_run_is_said_to_have_lost_contact_and_for_how_long(editor: Client, project: Project) -> None:
    run = make_run(project, spec={"name": "quiet"}, state="running", now=timezone.now())
    Attempt.objects.filter(run=run).update(last_contact_at=timezone.now() - timedelta(minutes=4))

    page = home(editor)

    assert "1 run lost contact" in page
    assert "No heartbeat for 4 min" in page
    assert 'data-state="lost"' in page


def test_a_running_run_shows_phase_progress_and_value(editor: Client, project: Project) -> None:
    make_run(
        project,
        spec={"name": "going"},
        state="running",
        now=timezone.now(),
        step=30,
        num_steps=60,
        phase="update",
        latest_values={"reward/mean": 0.8125, "time/step_seconds": 2.0},
    )

    page = home(editor)

    assert "1 run is active, nothing needs you" in page
    assert "Update" in page
    assert "<b>30</b>" in page
    assert "0.8125" in page
    assert "51–78 s left" in page


def test_a_run_with_one_value_is_not_said_to_have_none(editor: Client, project: Project) -> None:
    for name, values in (("first", {"reward/mean": 0.3086}), ("none", {})):
        make_run(project, spec={"name": name}, state="running", now=timezone.now(), step=1, latest_values=values)

    page = home(editor)

    assert page.count("One value so far") == 1
    assert page.count("No value yet") == 1


def test_a_run_that_shows_symptoms_is_said_to_need_somebody(editor: Client, project: Project) -> None:
    live = make_run(project, spec={"name": "going"}, state="running", now=timezone.now(), step=60)
    ended = make_run(project, spec={"name": "over"}, state="finished", now=timezone.now(), step=60)
    for run, finding, tone, begin, end in (
        (live, "learning.truncated", "alarm", 41, None),
        (live, "learning.kl_runs_away", "alarm", 20, None),
        (live, "learning.no_signal", "alarm", 3, 9),  # over
        (ended, "learning.solved", "good", 44, None),
        (ended, "learning.entropy_collapse", "alarm", 12, None),
    ):
        HealthMark.objects.create(
            run=run, finding=finding, tone=tone, begin_step=begin, last_step=60, end_step=end, began_at=NOW
        )

    page = home(editor)

    assert "1 run shows a symptom, 1 run ended with a symptom" in page
    assert "nothing needs you" not in page
    assert "The policy runs away from its reference, since step 20, and 1 more" in page
    assert "Entropy collapses, since step 12<" in page


@pytest.mark.parametrize(
    ("state", "tone", "days", "headline"),
    [
        ("finished", "alarm", 2, "1 run ended with a symptom"),
        ("finished", "alarm", 4, "Nothing needs you now"),
        ("finished", "good", 2, "Nothing needs you now"),
        ("failed", "alarm", 0, "1 run failed"),  # said once
    ],
)
def test_a_run_that_ended_lately_with_a_symptom_is_counted(
    editor: Client, project: Project, state: str, tone: str, days: int, headline: str
) -> None:
    run = make_run(project, state=state, now=timezone.now(), step=60)
    Run.objects.filter(pk=run.pk).update(ended_at=timezone.now() - timedelta(days=days, minutes=1))
    HealthMark.objects.create(
        run=run, finding="learning.truncated", tone=tone, begin_step=12, last_step=60, began_at=NOW
    )

    assert f'<h1 data-part="headline">{headline}</h1>' in home(editor)


def test_the_queue_says_why_each_run_waits(editor: Client, project: Project) -> None:
    make_run(project, spec={"name": "patient"}, wait_reason="Needs 3 CPUs, 2 are free")

    assert "Needs 3 CPUs, 2 are free" in home(editor)


def test_an_unreachable_cluster_is_said_in_a_sentence(editor: Client) -> None:
    assert "Runs wait in the queue until it answers" in home(editor)


def test_runs_of_other_projects_are_not_shown(editor: Client) -> None:
    make_run(make_project(), spec={"name": "foreign"}, state="failed", now=timezone.now())

    assert "foreign" not in home(editor)


def test_a_person_without_a_project_is_told_so(client: Client) -> None:
    client.force_login(make_user(), backend="django.contrib.auth.backends.ModelBackend")

    assert "not a member of any project" in home(client)
    assert client.get(reverse("runs")).status_code == 404
