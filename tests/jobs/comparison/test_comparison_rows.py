"""Comparisons of rows: the clean history, whole windows, exact extremes of long series, samples, and CSV."""

import csv
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from jobs.comparison.compare import compare, current_specs, metric_table, visible_runs
from jobs.comparison.export import series_csv, table_csv
from jobs.comparison.read import StepWindow, read_columns
from jobs.comparison.samples import side_by_side
from jobs.comparison.summary import Spot
from jobs.ingest.compaction import append_points
from jobs.ingest.store import AttemptCache, store
from jobs.models import Attempt, Metric, Run, Sample
from jobs.telemetry.chunks import points
from profiling import events as make
from tests.batches import T0, delivery
from tests.rows import NOW, make_project, make_run, make_user

pytestmark = pytest.mark.django_db


def measured(
    columns: Mapping[str, Sequence[float] | np.ndarray], *, attempt: int = 1, first: int = 1, **more: Any
) -> Run:
    """Return a run whose metrics have these values at step `first` and on."""
    run = make_run(state="finished", **more)
    add(run, columns, attempt=attempt, first=first)
    return run


def add(run: Run, columns: Mapping[str, Any], *, attempt: int = 1, first: int = 1) -> None:
    last = 0
    for name, values in columns.items():
        y = np.asarray(values, float)
        row, _ = Metric.objects.get_or_create(run=run, name=name)
        x = np.arange(first, first + len(y))
        append_points({row.pk: points(x, x, y)}, attempt=attempt, through=0)
        last = max(last, int(x[-1]))
    Run.objects.filter(pk=run.pk).update(step=last, latest_attempt=attempt)
    run.refresh_from_db()


def test_a_comparison_looks_at_the_steps_that_both_have_done() -> None:
    short = measured(
        {"time/step_seconds": [1.0, 1.1] * 20, "reward/mean": [0.5] * 40, "time/rollout_seconds": [0.5] * 40}
    )
    long = measured({"time/step_seconds": [2.0] * 40 + [99.0] * 60, "reward/mean": [0.5] * 40 + [9.0] * 60})

    found = compare(runs=[long, short], base_id=long.pk)

    assert found.window == StepWindow(low=1, high=40, total=40)
    assert found.verdicts[short.pk].badge == "better"
    gain = found.verdicts[short.pk].gain
    assert gain is not None
    assert gain.value == 0.0  # the rewards of steps 41 to 100 do not count
    assert found.phases[long.pk].step == 2.0
    assert dict(found.phases[short.pk].seconds) == {"rollout": 0.5}


def test_what_was_done_before_a_resume_and_after_its_checkpoint_is_not_compared() -> None:
    run = measured({"reward/mean": [0.1] * 30})
    Attempt.objects.create(run=run, number=2, submission_id="second", resume_attempt=1, resume_step=10)
    add(run, {"reward/mean": [0.7] * 15}, attempt=2, first=11)

    column = read_columns(run_id=run.pk, names=["reward/mean"], window=StepWindow(low=1, high=25, total=25))[
        "reward/mean"
    ]
    last = metric_table(runs=[run], at=10)[0].summaries[0]

    assert column.x.tolist() == list(range(1, 26))
    assert column.y.tolist() == [0.1] * 10 + [0.7] * 15
    assert (last.last, last.at) == (Spot(step=25, value=0.7), Spot(step=10, value=0.1))


def test_a_retried_runs_changed_settings_are_those_of_its_latest_attempt() -> None:
    run = make_run(spec={"hardware": {"policy_ranks": 2}})
    Attempt.objects.create(run=run, number=2, submission_id="second", overrides={"hardware": {"policy_ranks": 1}})
    run.latest_attempt = 2

    assert current_specs([run])[0]["hardware"]["policy_ranks"] == 1


def test_extremes_and_the_value_at_a_step_are_exact_in_a_long_series() -> None:
    y = np.random.default_rng(3).normal(size=120_000)
    y[70_000], y[20_001], y[99_999] = 50.0, -50.0, math.nan
    run = measured({"reward/mean": y})

    found = metric_table(runs=[run], at=70_003)[0].summaries[0]

    assert (found.high, found.low) == (Spot(step=70_001, value=50.0), Spot(step=20_002, value=-50.0))
    assert found.best == found.high
    assert found.at == Spot(step=70_003, value=float(y[70_002]))
    assert found.last == Spot(step=120_000, value=float(y[-1]))
    assert found.has_odd


def test_a_sparse_series_is_found_at_a_step_that_it_skips() -> None:
    run = measured({})
    row = Metric.objects.create(run=run, name="eval/accuracy")
    append_points({row.pk: points([100, 500, 900], [1, 2, 3], [0.1, 0.5, 0.9])}, attempt=1, through=0)

    assert metric_table(runs=[run], at=899)[0].summaries[0].at == Spot(step=500, value=0.5)


def test_metrics_that_one_run_lacks_are_rows_without_its_numbers() -> None:
    one, other = measured({"reward/mean": [0.5]}), measured({"loss/sft": [2.0]})

    rows = {row.name: row for row in metric_table(runs=[one, other], at=1)}

    assert rows["reward/mean"].summaries[1].last is None
    assert rows["loss/sft"].summaries[0].last is None
    assert [row.name for row in metric_table(runs=[one, other], at=1, names=["loss/sft"])] == ["loss/sft"]


def test_frames_that_no_chunk_holds_yet_are_compared_too() -> None:
    run = make_run(state="running")
    rewards = [make.metric({"reward/mean": 0.5}, attempt=1, step=step, t=T0 + step) for step in range(1, 13)]
    store([delivery(run.pk, 1, rewards)], memory=AttemptCache(), now=NOW)
    run.refresh_from_db()

    assert metric_table(runs=[run], at=12)[0].summaries[0].at == Spot(step=12, value=0.5)
    assert compare(runs=[run], base_id=run.pk).window == StepWindow(low=1, high=12, total=12)


def test_queries_do_not_grow_with_the_length_of_runs() -> None:
    names = ("time/step_seconds", "reward/mean", "kl/reference")
    short = [measured({name: np.ones(50) for name in names}) for _ in range(2)]
    long = [measured({name: np.ones(4000) for name in names}) for _ in range(2)]
    counts = []
    for runs in (short, long):
        with CaptureQueriesContext(connection) as queries:
            compare(runs=runs, base_id=runs[0].pk)
            metric_table(runs=runs, at=40)
        counts.append(len(queries))

    assert counts[0] == counts[1]


def test_twelve_runs_of_twenty_metrics_take_as_many_statements_as_two() -> None:
    names = [f"metric/{k}" for k in range(20)]
    runs = [measured(dict.fromkeys(names, np.ones(30 + i))) for i in range(12)]
    counts = []
    for some in (runs[:2], runs):
        with CaptureQueriesContext(connection) as queries:
            table = metric_table(runs=some, at=29)
            compare(runs=some, base_id=some[0].pk)
        counts.append(len(queries))
        assert {row.summaries[-1].at for row in table} == {Spot(step=29, value=1.0)}

    assert counts[0] == counts[1] <= 20


def sample(run: Run, step: int, prompt: str, *, text: str = "a", **more: Any) -> None:
    values = {"attempt": 1, "index": 0, "group": 0 if prompt == "p" else 1, "expected": "4", "reward": 1.0, **more}
    Sample.objects.create(run=run, step=step, prompt=prompt, completion=text, tokens=3, **values)


def test_samples_stand_beside_those_of_the_same_prompt_and_step() -> None:
    one, other = make_run(), make_run()
    for run, text in ((one, "one"), (other, "other")):
        sample(run, 5, "p", text=text)
        sample(run, 5, "p", index=1, text=f"{text} again")
    sample(one, 5, "q")
    sample(one, 9, "p")
    sample(other, 5, "p", is_eval=True)

    found = side_by_side(run_ids=[one.pk, other.pk], is_eval=False)

    assert (found.step, found.steps, found.shared_steps) == (5, (9, 5), frozenset({5}))
    assert [(row.prompt, row.num_runs) for row in found.rows] == [("p", 2), ("q", 1)]
    assert [[s.completion for s in own] for own in found.rows[0].answers] == [
        ["one", "one again"],
        ["other", "other again"],
    ]
    assert found.num_shared == 1
    assert side_by_side(run_ids=[one.pk, other.pk], is_eval=True).num_prompts == 1
    assert side_by_side(run_ids=[one.pk, other.pk], is_eval=False, step=7).rows == ()


def test_samples_of_a_dead_branch_are_left_out() -> None:
    run = make_run()
    sample(run, 8, "p", text="dead")
    sample(run, 5, "p", text="before")
    Attempt.objects.create(run=run, number=2, submission_id="second", resume_attempt=1, resume_step=5)
    sample(run, 5, "p", attempt=2, text="again")

    found = side_by_side(run_ids=[run.pk], is_eval=False)

    assert found.steps == (5,)
    assert [s.completion for s in found.rows[0].answers[0]] == ["again"]


def test_runs_of_others_are_not_there() -> None:
    project = make_project()
    mine, foreign = make_run(project), make_run()
    user = make_user(project=project)

    assert visible_runs(user=user, ids=["r-gone", foreign.pk, mine.pk]) == [mine]


def test_the_table_as_csv_gives_every_number_with_its_step() -> None:
    base = measured({"reward/mean": [0.5, 0.9, 0.7]}, spec={"name": "=cmd()"})
    other = measured({"reward/mean": [0.4, 0.6]})

    lines = list(csv.DictReader(table_csv(runs=[base, other], base_id=base.pk, at=2)))

    assert [(line["run"], line["is_base"]) for line in lines] == [(base.pk, "1"), (other.pk, "0")]
    assert lines[0]["name"] == "'=cmd()"  # no spreadsheet takes it for a formula
    first = {key: lines[0][key] for key in ("last", "best", "best_step", "min", "max", "at", "at_step")}
    assert (float(lines[1]["mean"]), "mean_step" in lines[1]) == (pytest.approx(0.5), False)
    assert first == {
        "last": "0.7",
        "best": "0.9",
        "best_step": "2",
        "min": "0.5",
        "max": "0.9",
        "at": "0.9",
        "at_step": "2",
    }
    assert float(lines[1]["at_minus_base"]) == pytest.approx(-0.3)
    assert (lines[1]["metric"], lines[1]["better"]) == ("reward/mean", "higher")


def test_the_series_as_csv_leave_no_point_out() -> None:
    y = np.arange(12_000) / 7
    run = measured({"reward/mean": y, "kl/reference": [1.0]})

    lines = list(csv.reader(series_csv(runs=[run], names=["reward/mean"])))

    assert lines[0] == ["run", "name", "metric", "step", "value"]
    assert len(lines) == 12_001
    assert [int(line[3]) for line in lines[1:]] == list(range(1, 12_001))
    assert [float(line[4]) for line in lines[1:]] == y.tolist()
