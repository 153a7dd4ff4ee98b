"""Health is judged as a run goes on and kept: one mark for each stretch of steps, however often one looks."""

from datetime import timedelta

import pytest

from jobs.diagnosis.bands import BandRefused, set_bands
from jobs.diagnosis.health import AT_ONCE, QUIET, judge_next
from jobs.models import Attempt, AuditEvent, HealthMark, Run
from profiling import events as make
from tests.attempts import end
from tests.batches import metric
from tests.jobs.diagnosis.test_symptoms import report
from tests.rows import NOW, make_run

pytestmark = pytest.mark.django_db

KL = "learning.kl_runs_away"
LATER = timedelta(seconds=11)


def tell(run: Run, values: dict[int, float], *, attempt: int = 1, name: str = "kl/reference") -> None:
    """Report steps, each with its end, as a trainer does."""
    events: list[make.Event] = [metric(step, attempt=attempt, **{name: value}) for step, value in values.items()]
    report(run, *events, attempt=attempt)
    Run.objects.filter(pk=run.pk).update(step=max(values))


def look(times: int = 1, *, since: int = 0) -> None:
    for i in range(since, since + times):
        judge_next(now=NOW + i * LATER)


def marks(run: Run) -> list[tuple[str, int, int | None]]:
    rows = HealthMark.objects.filter(run=run).order_by("begin_step")
    return list(rows.values_list("finding", "begin_step", "end_step"))


def test_a_mark_begins_where_it_went_wrong_and_ends_when_it_is_over() -> None:
    run = make_run(state="running")
    tell(run, {step: 0.1 if step < 20 else 0.9 for step in range(1, 31)})
    look(3)
    assert marks(run) == [(KL, 25, None)]  # the median of ten steps is beyond 0.5
    assert "median of the last 10 values" in HealthMark.objects.get().text
    changes = Run.objects.get(pk=run.pk).capture_changes
    assert changes == 1  # open pages read it

    tell(run, dict.fromkeys(range(31, 51), 0.1))
    look(4, since=3)

    ((finding, begin, end_step),) = marks(run)
    assert (finding, begin) == (KL, 25)
    assert end_step is not None
    assert 31 <= end_step < 31 + QUIET
    assert Run.objects.get(pk=run.pk).capture_changes == changes + 1


@pytest.mark.parametrize("num_looks", [1, 7])
def test_when_one_looks_changes_nothing(num_looks: int) -> None:
    run = make_run(state="running")
    values = {step: 0.1 if step < 6 else 0.9 for step in range(1, AT_ONCE + 1)}
    parts = [values] if num_looks == 1 else [{step: value} for step, value in values.items()]
    for i, part in enumerate(parts):
        tell(run, part)
        look(2, since=2 * i)

    assert marks(run) == [(KL, 11, None)]
    assert judge_next(now=NOW + 999 * LATER) is None  # nothing new


def test_a_resume_takes_back_what_was_judged_of_the_dead_branch() -> None:
    run = make_run(state="running")
    tell(run, {step: 0.1 if step < 6 else 0.9 for step in range(1, 31)})
    look(4)
    assert marks(run) == [(KL, 12, None)]  # of 30 steps at once some are judged
    end(run)
    Attempt.objects.create(run=run, number=2, submission_id=f"{run.pk}-2", resume_attempt=1, resume_step=5)
    Run.objects.filter(pk=run.pk).update(latest_attempt=2, state="running", step=5)

    look(1, since=4)

    assert marks(run) == []


def test_what_ended_while_the_console_was_away_is_judged_and_the_trash_is_not() -> None:
    run, gone = make_run(state="running"), make_run(state="running")
    for one in (run, gone):
        tell(one, dict.fromkeys(range(1, 13), 2.9))
        end(one)
    Run.objects.filter(pk=gone.pk).update(trashed_at=NOW)

    look(3)

    assert marks(run) == [(KL, 10, None)]
    assert marks(gone) == []


def test_only_a_band_of_the_project_itself_makes_a_mark() -> None:
    run = make_run(state="running")
    tell(run, dict.fromkeys(range(1, 13), 12.0), name="loss/policy")  # the dictionary's band ends at 0.5
    look(2)
    assert marks(run) == []

    set_bands(project=run.project, raw={"loss/policy": [0.0, 1.0]}, user=None)
    tell(run, dict.fromkeys(range(13, 15), 12.0), name="loss/policy")
    look(2, since=2)

    assert marks(run) == [("band:loss/policy", 13, None)]
    assert AuditEvent.objects.get(verb="bands.set").after == {"loss/policy": [0.0, 1.0]}


@pytest.mark.parametrize("ends", [[1.0, 0.0], [1.0], ["a", 2], [0.0, float("inf")], "0 to 1", [True, 2.0]])
def test_a_band_that_is_none_is_refused_by_its_metric(ends: object) -> None:
    project = make_run(state="running").project

    with pytest.raises(BandRefused, match="two numbers, the smaller first") as refused:
        set_bands(project=project, raw={"kl/reference": ends}, user=None)

    assert refused.value.field == "kl/reference"
    project.refresh_from_db()
    assert project.metric_bands == {}


def test_a_band_is_taken_back_or_switched_off() -> None:
    project = make_run(state="running").project
    set_bands(project=project, raw={"kl/reference": [0, 0.2], "reward/mean": []}, user=None)
    assert project.metric_bands == {"kl/reference": [0.0, 0.2], "reward/mean": []}

    set_bands(project=project, raw={"kl/reference": None}, user=None)

    assert project.metric_bands == {"reward/mean": []}
