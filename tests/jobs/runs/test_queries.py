"""What pages read: headers, lists, CSV, home and cluster, with a fixed number of queries."""

import csv
import io
import json
from dataclasses import asdict
from datetime import timedelta

import pytest
from django.test.utils import CaptureQueriesContext
from pytest_django import DjangoAssertNumQueries

from jobs.models import Attempt, Frame, Run, Study
from jobs.runs import queries
from jobs.runs.cluster_use import cluster_page
from jobs.runs.filter import parse_filter
from jobs.runs.header import run_header, run_headers
from jobs.telemetry import eta
from jobs.telemetry.frames import encode_frame
from profiling.events import metric
from tests.rows import NOW, make_project, make_run, make_user

pytestmark = pytest.mark.django_db


def add_steps(run: Run, seconds: list[float]) -> None:
    """Store a frame a step, as ingest does."""
    for step, value in enumerate(seconds, start=1):
        events = [metric({"time/step_seconds": value}, attempt=1, step=step, t=step)]
        payload = encode_frame(seq=step, attempt=1, events=events, logs=[])
        Frame.objects.create(run=run, seq=step, attempt=1, batch=step, at=NOW, payload=payload)
    Run.objects.filter(pk=run.pk).update(step=len(seconds), latest_values={"time/step_seconds": seconds[-1]})
    run.refresh_from_db()


def test_a_header_is_json_and_says_where_the_run_stands() -> None:
    run = make_run(state="running", spec={"name": "demo"}, user=make_user("ada"), tags=["a"], step=3)

    header = json.loads(json.dumps(asdict(run_header(run, now=NOW))))

    assert (header["name"], header["state"], header["step"], header["num_steps"]) == ("demo", "running", 3, 60)
    assert (header["author"], header["tags"], header["model"]) == ("ada", ["a"], "tiny-word-problems")
    assert header["queue_position"] is None


def test_contact_is_lost_after_fifteen_seconds_of_a_live_run_only() -> None:
    live, ended = make_run(state="running"), make_run(state="finished")

    assert not run_header(live, now=NOW + timedelta(seconds=15)).is_lost_contact
    assert run_header(live, now=NOW + timedelta(seconds=16)).is_lost_contact
    assert not run_header(ended, now=NOW + timedelta(seconds=16)).is_lost_contact


def test_the_queue_is_counted_over_all_projects() -> None:
    first, second, third = make_run(), make_run(state="running"), make_run()

    assert [run_header(run).queue_position for run in (first, second, third)] == [1, None, 2]


def test_the_time_left_spans_what_recent_steps_took() -> None:
    run = make_run(state="running")
    add_steps(run, [1.0, 1.0, 3.0, 1.0, 2.0])

    low, high = run_header(run, now=NOW).eta_seconds or (0.0, 0.0)

    assert low == pytest.approx(55 * 1.0)
    assert 55 * 2.0 < high <= 55 * 3.0
    silent = run_header(run, now=NOW + timedelta(seconds=60)).eta_seconds
    assert silent == (0.0, high - 60)  # it goes on unheard
    assert run_header(run, now=NOW + timedelta(hours=1)).eta_seconds is None


def test_the_time_left_is_unknown_before_the_first_step_and_after_the_end() -> None:
    assert run_header(make_run(state="running")).eta_seconds is None
    assert run_header(make_run(state="finished", step=60)).eta_seconds is None
    assert run_header(make_run()).eta_seconds is None


def test_step_times_are_read_once_a_step(django_assert_num_queries: DjangoAssertNumQueries) -> None:
    run = make_run(state="running")
    add_steps(run, [1.0, 1.5])
    first = eta.recent_times(run)

    with django_assert_num_queries(0):
        assert eta.recent_times(run) == first == [1.5, 1.0]


def test_a_list_takes_as_many_queries_for_thirty_runs_as_for_three(
    django_assert_max_num_queries: DjangoAssertNumQueries,
) -> None:
    project = make_project()
    for _ in range(3):
        make_run(project, state="running", user=make_user())
    with CaptureQueriesContext(_connection()) as few:
        queries.runs_list(project)
    for _ in range(27):
        make_run(project, user=make_user())

    with django_assert_max_num_queries(len(few) + 1):  # one more for the places in the queue
        page = queries.runs_list(project, columns=("optimizer.learning_rate",))

    assert len(page.rows) == 30


def _connection() -> object:
    from django.db import connection

    return connection


def test_runs_without_the_value_come_last_in_either_direction() -> None:
    project = make_project()
    for name, value in (("a", 1.0), ("b", None), ("c", 3.0), ("d", "NaN")):
        values = {} if value is None else {"reward/mean": value}
        make_run(project, spec={"name": name}, latest_values=values)

    def names(sort: str) -> str:
        return "".join(row.header.name for row in queries.runs_list(project, sort=sort).rows)

    assert names("reward/mean")[:2] == "ac"
    assert names("-reward/mean")[:2] == "ca"
    assert set(names("reward/mean")[2:]) == {"b", "d"}


def test_words_comparisons_states_and_tags_all_have_to_hold() -> None:
    project = make_project()
    make_run(project, spec={"name": "fast", "knobs": {"train.num_steps": 5}}, tags=["x"], state="failed")
    make_run(project, spec={"name": "fast too", "knobs": {"train.num_steps": 50}}, tags=["x", "y"], state="failed")
    make_run(project, spec={"name": "slow"}, tags=["x", "y"], state="failed")

    found = parse_filter(q="FAST train.num_steps>=50", states=["failed"], tags=["x", "y"])

    assert [row.header.name for row in queries.runs_list(project, found).rows] == ["fast too"]


def test_archived_runs_are_listed_apart() -> None:
    project = make_project()
    make_run(project, spec={"name": "kept"})
    make_run(project, spec={"name": "away"}, state="finished", archived_at=NOW)

    assert [r.header.name for r in queries.runs_list(project).rows] == ["kept"]
    assert [r.header.name for r in queries.runs_list(project, parse_filter(is_archived=True)).rows] == ["away"]


def test_a_page_beyond_the_last_is_the_last() -> None:
    project = make_project()
    for _ in range(5):
        make_run(project)

    page = queries.runs_list(project, page=99, page_size=2)

    assert (page.page, page.num_pages, len(page.rows)) == (3, 3, 1)


def test_csv_has_a_column_for_each_knob_and_last_metric() -> None:
    project = make_project()
    make_run(project, spec={"algorithm": "sft"}, latest_values={"loss/sft": 0.5}, tags=["a", "b"])
    make_run(project, latest_values={"reward/mean": 0.9}, now=NOW + timedelta(seconds=1))

    rows = list(csv.DictReader(io.StringIO("".join(queries.runs_csv(project)))))

    assert [row["loss/sft"] for row in rows] == ["", "0.5"]
    assert [row["train.batch_size"] for row in rows] == ["", "64"]
    assert rows[1]["tags"] == "a b"


def test_home_shows_what_needs_a_look() -> None:
    project = make_project()
    lost = make_run(project, state="running")
    failed = make_run(project, state="failed")
    old = make_run(project, state="failed", now=NOW - timedelta(days=2))
    queued = make_run(project)
    make_run(make_project(), state="failed")

    page = queries.home(project, now=NOW + timedelta(minutes=1))

    assert [r.id for r in page.attention] == [lost.pk, failed.pk]
    assert {r.id for r in page.recent} == {failed.pk, old.pk}
    assert [r.id for r in page.queued] == [queued.pk]


def test_the_queue_summary_says_how_long_the_oldest_waits() -> None:
    make_run(state="running")
    assert queries.queue_summary().oldest == ""
    make_run(now=NOW)

    summary = queries.queue_summary()

    assert (summary.num_queued, summary.oldest_at) == (1, NOW)


def test_the_cluster_page_compute_use_from_our_own_runs() -> None:
    run = make_run(state="running")
    make_run()
    Attempt.objects.filter(run=run).update(num_cpus=4)

    page = cluster_page(make_user(project=run.project))

    assert page.state.cpus_used == 4
    assert [place.header and place.header.id for place in page.holders] == [run.pk]
    assert [place.header for place in page.queue] == [None]
    assert not page.state.is_reachable


def test_the_header_lists_the_attempts_and_what_each_left_in_the_history() -> None:
    run = make_run(state="running")
    Attempt.objects.create(
        run=run, number=2, submission_id="second", state="running", resume_attempt=1, resume_step=40, is_automatic=True
    )
    Run.objects.filter(pk=run.pk).update(latest_attempt=2)
    run.refresh_from_db()

    header = run_header(run, now=NOW)

    about = [(a.number, a.resume_attempt, a.resume_step, a.visible_through, a.is_automatic) for a in header.attempts]
    assert about == [(1, None, 0, 40, False), (2, 1, 40, None, True)]
    assert [asdict(h) for h in run_headers([run], now=NOW)] == [asdict(header)]


def test_the_header_names_the_sweep() -> None:
    study = Study.objects.create(
        project=make_project(), name="Learning rates", spec={}, knobs=[], method="grid", num_runs=2
    )
    run = make_run(study.project, study=study)

    assert asdict(run_header(run, now=NOW))["study"] == {"id": study.pk, "name": "Learning rates"}
    assert run_header(make_run(), now=NOW).study is None
