"""Captures side by side: which stand in one row, in which order, and what is told of dead branches."""

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from jobs.comparison.traces import MAX_PER_RUN, TraceRow, count_traces, traces_side_by_side
from jobs.models import Attempt, Capture, Project, Run
from tests.rows import make_project, make_run

pytestmark = pytest.mark.django_db


@pytest.fixture
def project() -> Project:
    return make_project()


def capture(run: Run, first: int, num: int = 1, *, tool: str = "torch", **fields: Any) -> Capture:
    values: dict[str, Any] = {"attempt": 1, "state": "ready", **fields}
    return Capture.objects.create(run=run, tool=tool, first_step=first, num_steps=num, **values)


def ids(row: TraceRow) -> list[list[str]]:
    return [[trace.capture.pk for trace in own] for own in row.captures]


def test_overlapping_steps_of_one_tool_stand_in_one_row(project: Project) -> None:
    one, other = make_run(project), make_run(project)
    early, late = capture(one, 4, 2), capture(one, 8, 2)
    across, apart = capture(other, 5, 3), capture(other, 20)
    whole = capture(one, 4, 3, tool="nsys")

    rows = traces_side_by_side(run_ids=[one.pk, other.pk]).rows

    assert [(row.tool, row.steps, ids(row)) for row in rows] == [
        ("torch", (4, 7), [[early.pk], [across.pk]]),
        ("nsys", (4, 6), [[whole.pk], []]),
        ("torch", (8, 9), [[late.pk], []]),  # step 7 and step 8 touch: that is no overlap
        ("torch", (20, 20), [[], [apart.pk]]),
    ]
    assert [row.num_runs for row in rows] == [2, 1, 1, 1]


def test_a_chain_of_overlaps_is_one_row_with_each_runs_captures_by_step(project: Project) -> None:
    one, other = make_run(project), make_run(project)
    last, first = capture(one, 7, 3), capture(one, 2, 3)
    between = capture(other, 4, 4)

    (row,) = traces_side_by_side(run_ids=[other.pk, one.pk]).rows

    assert (row.steps, ids(row)) == ((2, 9), [[between.pk], [first.pk, last.pk]])


def test_the_steps_that_were_recorded_count_and_unknown_ones_stand_last(project: Project) -> None:
    one, other = make_run(project), make_run(project)
    told = capture(one, 0, 2, meta={"first_step": 11, "num_steps": 1})
    asked = capture(other, 11, 1)
    waiting = [capture(run, 0, 2, state="armed") for run in (one, other)]
    capture(one, 11, 1, state="withdrawn")  # it recorded nothing

    rows = traces_side_by_side(run_ids=[one.pk, other.pk]).rows

    assert [(row.steps, ids(row)) for row in rows] == [
        ((11, 11), [[told.pk], [asked.pk]]),
        (None, [[waiting[0].pk], [waiting[1].pk]]),
    ]
    assert count_traces(run_ids=[one.pk, other.pk]) == 4


def test_what_was_resumed_past_is_marked(project: Project) -> None:
    run = make_run(project)
    kept, dead = capture(run, 3, 2), capture(run, 6, 2)
    Attempt.objects.create(run=run, number=2, resume_attempt=1, resume_step=5)
    newest = capture(run, 6, 2, attempt=2)

    rows = traces_side_by_side(run_ids=[run.pk]).rows

    found = {trace.capture.pk: trace.is_dead for row in rows for own in row.captures for trace in own}
    assert found == {kept.pk: False, dead.pk: True, newest.pk: False}


def test_many_captures_cost_no_more_queries_and_the_oldest_are_counted(project: Project) -> None:
    runs = [make_run(project), make_run(project)]
    counts = []
    for step in (1, 100):
        for place in range(step, 2 * step):
            capture(runs[0], place)
        with CaptureQueriesContext(connection) as queries:
            found = traces_side_by_side(run_ids=[run.pk for run in runs])
        counts.append(len(queries))

    assert counts == [3, 3]
    assert (found.num_left_out, len(found.rows)) == (101 - MAX_PER_RUN, MAX_PER_RUN)
