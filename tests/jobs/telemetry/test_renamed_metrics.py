"""A metric with a new name: what was stored, sent, asked for or saved under the former one is the same series."""

from importlib import import_module

import pytest
from django.apps import apps
from django.db import connection

from console.views.runs.columns import column
from jobs.catalog.metric import current_name, metric, metrics
from jobs.ingest.store import AttemptCache, store
from jobs.models import Frame, Metric, Run, Study
from jobs.runs.filter import check_sort, parse_filter
from jobs.runs.find.terms import IsCompared
from jobs.runs.header import run_headers
from jobs.sweeps.table import study_table
from jobs.telemetry.frames import decode_frame
from jobs.telemetry.series import read_series, series_names
from tests.batches import delivery
from tests.batches import metric as event
from tests.rows import NOW, make_project, make_run, make_user, signed_in

FORMER, PRESENT = "groups/without_signal_share", "groups/zero_variance_fraction"
migration = import_module("jobs.migrations.0002_metric_names")


def values_of(run: Run, name: str) -> list[tuple[str, list[float]]]:
    return [(series.name, series.y.tolist()) for series in read_series(run_id=run.pk, names=[name]).series]


def test_a_former_name_belongs_to_one_metric_and_is_none_of_today() -> None:
    former = [name for info in metrics().values() for name in info.former]

    assert len(set(former)) == len(former)
    assert not set(former) & metrics().keys()
    assert metric(FORMER) == metrics()[PRESENT]
    assert current_name("reward/mean") == "reward/mean"
    assert {name: current_name(name) for name in former} == migration.RENAMED


@pytest.mark.django_db
def test_an_event_of_an_older_runner_is_stored_under_the_present_name() -> None:
    run = make_run()

    result = store([delivery(run.pk, 1, [event(1, **{FORMER: 0.25})])], memory=AttemptCache(), now=NOW)

    run.refresh_from_db()
    assert [series.name for series in series_names(run_id=run.pk)] == [PRESENT]
    assert run.latest_values == {PRESENT: 0.25}
    assert list(decode_frame(result.frames[0][1])["metrics"][0]["values"]) == [PRESENT]


@pytest.mark.django_db
@pytest.mark.parametrize("name", [FORMER, PRESENT])
def test_a_client_gets_the_same_series_by_both_names(name: str) -> None:
    run = make_run()
    store([delivery(run.pk, 1, [event(1, **{PRESENT: 0.5})])], memory=AttemptCache(), now=NOW)

    assert values_of(run, name) == [(PRESENT, [0.5])]


@pytest.mark.django_db
def test_what_an_older_console_stored_shows_under_the_present_name() -> None:
    run = make_run()
    store([delivery(run.pk, 1, [event(1, **{PRESENT: 0.75})])], memory=AttemptCache(), now=NOW)
    Metric.objects.filter(run=run).update(name=FORMER)
    frame = Frame.objects.get(run=run)
    Frame.objects.filter(pk=frame.pk).update(payload=bytes(frame.payload).replace(PRESENT.encode(), FORMER.encode()))
    Run.objects.filter(pk=run.pk).update(latest_values={FORMER: 0.75, "reward/mean": 1.0})
    assert values_of(run, PRESENT) == []

    migration.rename(apps, connection.schema_editor())

    run.refresh_from_db()
    assert values_of(run, PRESENT) == [(PRESENT, [0.75])]
    assert run.latest_values == {PRESENT: 0.75, "reward/mean": 1.0}


def test_a_saved_filter_and_its_order_and_columns_find_the_present_name() -> None:
    assert parse_filter(q=f"{FORMER}>0.5").term == IsCompared("metric", PRESENT, ">", 0.5)
    assert check_sort(f"-{FORMER}") == PRESENT
    assert column(FORMER) == column(PRESENT)


@pytest.mark.django_db
def test_a_runs_newest_values_have_both_names() -> None:
    run = make_run(latest_values={PRESENT: 0.25, "reward/mean": 1.0})

    assert run_headers([run])[0].latest_values == {PRESENT: 0.25, FORMER: 0.25, "reward/mean": 1.0}


@pytest.mark.django_db
def test_a_sweep_is_judged_by_a_former_name() -> None:
    project = make_project()
    study = Study.objects.create(project=project, name="s", spec={}, knobs=[], method="grid", num_runs=1)
    make_run(project, study=study, latest_values={PRESENT: 0.25})

    assert study_table(study, metric_name=FORMER) == study_table(study, metric_name=PRESENT)


@pytest.mark.django_db
@pytest.mark.parametrize("path", ["runs/{}/series?metrics={}", "compare/series?runs={}&metrics={}"])
@pytest.mark.parametrize("name", [FORMER, PRESENT])
def test_an_answer_calls_a_metric_what_the_request_calls_it(path: str, name: str) -> None:
    run = make_run()
    client = signed_in(make_user(project=run.project))
    store([delivery(run.pk, 1, [event(1, **{PRESENT: 0.5})])], memory=AttemptCache(), now=NOW)

    series = client.get("/api/" + path.format(run.pk, name)).json()["series"]

    assert [(each["name"], each["y"]) for each in series] == [(name, [0.5])]
